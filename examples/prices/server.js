// A small price service: prices in PostgreSQL, kept in memory once they were asked for, and a count of each in Redis.
//
//     node server.js PORT
//
// It needs $PRICES_DATABASE (a PostgreSQL URL) and $PRICES_REDIS (a URL).

'use strict';

const http = require('node:http');
const { Pool } = require('pg');
const { createClient } = require('redis');

const TIME = 250; // [ms] that a reader waits

const connectionString = process.env.PRICES_DATABASE;
const database = new Pool({ connectionString, max: 4, options: `-c statement_timeout=${TIME}` });
const changes = new Pool({ connectionString, max: 1 }); // who changes a price has time
const counts = createClient({ url: process.env.PRICES_REDIS });
for (const one of [database, changes, counts]) one.on('error', (error) => console.error(`lost: ${error.message}`));
const known = new Map(); // sku to the promise of its price: who asks meanwhile waits for the same query

async function read(sku) {
  const found = await database.query('SELECT price FROM prices WHERE sku = $1', [sku]);
  return found.rows.length ? found.rows[0].price : null;
}

function price(sku) {
  if (!known.has(sku)) known.set(sku, read(sku));
  return known.get(sku);
}

async function change(sku, value) {
  await changes.query(
    'INSERT INTO prices (sku, price) VALUES ($1, $2) ON CONFLICT (sku) DO UPDATE SET price = $2',
    [sku, value],
  );
  known.delete(sku);
}

async function answer(request) {
  const [, noun, sku, value] = decodeURIComponent(request.url).split('/');
  if (noun !== 'price' || !sku) return [404, { error: 'no such page' }];
  if (request.method === 'PUT') {
    await change(sku, value);
    return [200, { sku, price: value }];
  }
  const found = await price(sku);
  const asked = await counts.incr(`asked:${sku}`);
  return found === null ? [404, { error: 'no such sku' }] : [200, { sku, price: found, asked }];
}

const server = http.createServer(async (request, response) => {
  let status, body;
  try {
    [status, body] = await answer(request);
  } catch (error) {
    console.error(`${request.method} ${request.url}: ${error.message}`);
    [status, body] = [500, { error: error.message }];
  }
  const text = JSON.stringify(body);
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
});

async function main() {
  await counts.connect();
  await database.query('CREATE TABLE IF NOT EXISTS prices (sku text PRIMARY KEY, price numeric(10, 2) NOT NULL)');
  await database.query(
    "INSERT INTO prices SELECT 'sku-' || n, n * 1.25 FROM generate_series(1, 40) AS n ON CONFLICT DO NOTHING",
  );
  server.listen(Number(process.argv[2] || 8000), '127.0.0.1', () => console.log('ready'));
}

main();
