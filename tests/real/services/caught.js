// As caught.py: node caught.js PORT RATES.
const http = require("http");

const [port, rates] = [Number(process.argv[2]), Number(process.argv[3])];
let currency = "EUR";

async function price() {
  const answer = await fetch(`http://127.0.0.1:${rates}/${currency}?day=1`, { headers: { connection: "close" } });
  return (await answer.json()).rate * 2;
}

async function handle(path) {
  console.log(`begin ${path}`);
  try {
    if (path === "/poison") currency = "XXX";
    else if (path.startsWith("/price")) return [200, { price: await price() }];
    return [200, {}];
  } catch (error) {
    console.error(`no price: ${error.name}`);
    return [500, { error: error.name, currency }];
  }
}

http.createServer(async (request, response) => {
  const [status, told] = await handle(request.url.split("?")[0]);
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(told));
}).listen(port, "127.0.0.1");
