"""A service with a pool of connections to PostgreSQL and a client of Redis: ``databases.py PORT POSTGRES_URL REDIS_PORT``.

For each line it counts in both, and answers both counts.
"""

import socket
import sys

import psycopg_pool
import redis

port, url, redis_port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
pool = psycopg_pool.ConnectionPool(url, min_size=2, max_size=2, open=True)
cache = redis.Redis(port=redis_port)
with pool.connection() as connection:
    connection.execute("create table counted (number serial primary key, text varchar)")
listener = socket.create_server(("127.0.0.1", port))
while True:
    client, _ = listener.accept()
    with client:
        lines = client.makefile("rb")
        while line := lines.readline():
            with pool.connection() as connection:
                row = connection.execute(
                    "insert into counted (text) values (%s) returning number", [line.decode().strip()]
                ).fetchone()
            client.sendall(b"%d %d\n" % (row[0], cache.incr("counted")))
