// What is kept of each request stays in a heap of 40 MB.  service.js PORT RATES
const http = require("http");
const rate = require("../rates.js");

const kept = [];
const fill = (count) => Array.from({ length: count }, (_, index) => ({ index }));

http.createServer((request, response) => {
  if (request.url === "/keep") kept.push(fill(230000));
  if (request.url !== "/work") return response.end("ok");
  rate(process.argv[3]).then(() => response.end(String(fill(300000).length)), () => process.abort());
}).listen(Number(process.argv[2]), "127.0.0.1");
