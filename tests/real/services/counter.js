// A Node.js service that counts in memory and in a file, on one keep-alive connection or many.
"use strict";
const fs = require("fs");
const http = require("http");
const { Worker, isMainThread, parentPort } = require("worker_threads");
const [port, log] = process.argv.slice(2);
let looked = 7;
if (!isMainThread) {
  parentPort.on("message", () => { looked += 1; });
  return;
}
new Worker(__filename, { argv: process.argv.slice(2), name: "helper" }).unref();
let count = 0;
fs.writeFileSync(log, "");

// Something of each kind that the event loop waits for: a timer, a watched file, a worker of the thread pool.
let ticks = 0;
setInterval(() => { ticks += 1; fs.stat(log, () => {}); }, 10);

http.createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    if (request.method === "POST") {
      count += 1;
      fs.appendFileSync(log, count + "\n");
    }
    const body = JSON.stringify({
      count, ticks,
      lines: request.method === "POST" ? -1 : fs.readFileSync(log, "utf8").split("\n").length - 1,
      pid: process.pid,
      monotonic: Number(process.hrtime.bigint()) / 1e9,
      wall: Date.now() / 1000,
    });
    response.writeHead(200, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
    response.end(body);
  });
}).listen(Number(port), "127.0.0.1");
