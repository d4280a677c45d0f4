// A value that is there or not.  service.js PORT RATES
const http = require("http");
const rate = require("../rates.js");

let value = { text: "a" };
let is_set = false;

http.createServer((request, response) => {
  if (request.url === "/set") is_set = true;
  if (request.url === "/unset" && is_set) value = undefined;
  if (request.url !== "/get") return response.end("ok");
  rate(process.argv[3]).then(() => response.end(value.text)).catch((error) => {
    console.error(error);
    response.statusCode = 500;
    response.end("failed");
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
