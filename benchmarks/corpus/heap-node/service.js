// What is kept of each request stays in a heap of 40 MB.  service.js PORT RATES
//
// Each object takes about 35 bytes. What fails needs 60 MB: V8 lets a heap grow beyond its limit by what one scavenge promotes, and may
// then end it in a task of its own, after the answer, where the need is nearer to the limit.
const http = require("http");
const rate = require("../rates.js");

const kept = [];
const fill = (count) => Array.from({ length: count }, (_, index) => ({ index }));

http.createServer((request, response) => {
  if (request.url === "/keep") kept.push(fill(230000));
  if (request.url !== "/work") return response.end("ok");
  rate(process.argv[3]).then(() => response.end(String(fill(600000).length)), () => process.abort());
}).listen(Number(process.argv[2]), "127.0.0.1");
