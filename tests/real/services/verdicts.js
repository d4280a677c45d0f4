// A shop whose cache a request poisons; before it looks there it asks the server of rates, which nobody records.
// node verdicts.js PORT RATES-PORT HOW, with HOW: silent (a generic 500), loud (the stack to stderr), fatal (uncaught).
const http = require("http");
const net = require("net");

const [port, rates, how] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const cache = { EUR: { factor: 2 } };

function ask() {
  return new Promise((resolve, reject) => {
    if (!rates) return resolve();
    const socket = net.connect(rates, "127.0.0.1");
    socket.on("error", reject);
    socket.on("data", () => { socket.end(); resolve(); });
  });
}

async function price() {
  await ask();
  return String(cache.EUR.factor);
}

http.createServer((request, response) => {
  if (request.url === "/poison") cache.EUR = null;
  if (request.url !== "/price") return response.end("ok");
  price().then((text) => response.end(text), (error) => {
    if (how === "fatal") process.nextTick(() => { throw error; });
    if (how === "loud") console.error(error);
    if (how !== "fatal") { response.statusCode = 500; response.end("internal error"); }
  });
}).listen(port, "127.0.0.1");
