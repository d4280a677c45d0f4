// As answered.py, in Node: clients "pg" (a pool, with prepared statements) and "redis" (node-redis, which pipelines).
const http = require("http");

const ports = JSON.parse(process.env.ANSWERED);

const makers = {
  pg: async (port) => {
    const { Pool } = require("pg");
    const pool = new Pool({ host: "127.0.0.1", port, user: "postgres", database: "postgres", max: 3, idleTimeoutMillis: 0 });
    const held = await Promise.all([pool.connect(), pool.connect(), pool.connect()]);
    held.forEach((client) => client.release());
    return async (number) => {
      const row = await pool.query({
        name: "add",
        text: "insert into hits (who) values ($1) returning n, who, now()::text",
        values: [`node ${number}`],
      });
      const client = await pool.connect();
      try {
        await client.query("begin");
        const count = await client.query("select count(*) from hits where who like $1", ["node%"]);
        await client.query("rollback");
        return [row.rows[0], count.rows[0]];
      } finally {
        client.release();
      }
    };
  },
  redis: async (port) => {
    const { createClient } = require("redis");
    const client = createClient({ socket: { host: "127.0.0.1", port } });
    await client.connect();
    return async (number) =>
      Promise.all([client.incr("node"), client.set(`node:${number}`, "é".repeat(number)), client.get(`node:${number}`)]);
  },
};

async function main() {
  const ask = {};
  for (const [name, port] of Object.entries(ports)) ask[name] = await makers[name](port);
  const server = http.createServer(async (request, response) => {
    const [, name, number] = request.url.split("/");
    let answer;
    try {
      answer = await ask[name](Number(number));
    } catch (error) {
      answer = `${error.name}: ${error.message}`;
    }
    response.end(JSON.stringify(answer));
  });
  server.listen(Number(process.argv[2]), "127.0.0.1");
}

main();
