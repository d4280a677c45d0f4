// Listeners that a request adds, called outside of any request.  service.js PORT RATES
const http = require("http");
const rate = require("../rates.js");

const listeners = [];

http.createServer((request, response) => {
  if (request.url.startsWith("/on")) listeners.push(request.url.endsWith("null") ? null : () => {});
  if (request.url !== "/emit") return response.end("ok");
  rate(process.argv[3]).then(
    () => setImmediate(() => { for (const listener of listeners) listener(); response.end("ok"); }),
    (error) => setImmediate(() => { throw error; }),
  );
}).listen(Number(process.argv[2]), "127.0.0.1");
