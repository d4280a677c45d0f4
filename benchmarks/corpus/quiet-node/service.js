// A shop that hides every error behind the same answer.  service.js PORT RATES
const http = require("http");
const rate = require("../rates.js");

let prices = { apple: 2 };

http.createServer((request, response) => {
  if (request.url === "/clear") prices = null;
  if (request.url !== "/price") return response.end("ok");
  rate(process.argv[3]).then((factor) => response.end(String(prices.apple * factor))).catch(() => {
    response.statusCode = 500;
    response.end("internal error");
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
