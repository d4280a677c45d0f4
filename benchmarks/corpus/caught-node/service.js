// Sessions, one of which loses its user; keep-alive.  service.js PORT RATES
const http = require("http");
const rate = require("../rates.js");

const sessions = new Map([["a", { user: { name: "eve" } }]]);

http.createServer(async (request, response) => {
  try {
    if (request.url === "/login") sessions.set("a", { user: { name: "eve" } });
    if (request.url === "/forget") sessions.get("a").user = null;
    if (request.url === "/me") await rate(process.argv[3]).then(() => sessions.get("a").user.name);
    response.end("ok");
  } catch (error) {
    console.error(error);
    response.statusCode = 500;
    response.end('{"error":"internal error"}');
  }
}).listen(Number(process.argv[2]), "127.0.0.1");
