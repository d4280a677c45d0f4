// A token that is good for two seconds; whoever uses it later meets an error.  service.js PORT RATES
const http = require("http");
const rate = require("../rates.js");

let token = null;

async function use() {
  await rate(process.argv[3]);
  if (token !== null && Date.now() - token > 2000) throw new RangeError("the token is too old");
}

http.createServer((request, response) => {
  if (request.url === "/login") token = Date.now();
  (request.url === "/use" ? use() : Promise.resolve()).then(() => response.end("ok"), (error) => {
    console.error(error);
    response.statusCode = 500;
    response.end("failed");
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
