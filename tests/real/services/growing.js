// A Node.js service whose memory changes with each request: a Map that grows, Buffers, a timer for each key; and it tells a digest of all.
"use strict";
const crypto = require("crypto");
const http = require("http");
const held = new Map();
let requests = 0, fired = 0, late = 0;
setInterval(() => { late += 1; }, 50).unref();
function grow() {
  requests += 1;
  const key = "key " + requests;
  held.set(key, Buffer.alloc(64 + (requests * 37) % 4096, requests % 251));
  if (requests > 200) held.delete("key " + (requests - 200));
  setTimeout(() => { fired += 1; }, 20 + requests % 30);
}
function digest() {
  const sum = crypto.createHash("sha256");
  for (const [key, value] of held) sum.update(key).update(value);
  return sum.digest("hex");
}
http.createServer((request, response) => {
  if (request.url !== "/state") grow();
  const body = JSON.stringify({ requests, held: held.size, digest: digest() });
  response.writeHead(200, { "Content-Length": Buffer.byteLength(body) });
  response.end(body);
}).listen(Number(process.argv[2]), "127.0.0.1");
