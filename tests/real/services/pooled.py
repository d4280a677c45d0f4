"""An HTTP service whose answers come from Redis over a pool of four connections that stay open."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

pool = redis.BlockingConnectionPool(max_connections=4, port=int(sys.argv[2]), retry=None, socket_timeout=5)
database = redis.Redis(connection_pool=pool)
held = [pool.get_connection() for _ in range(4)]
for one in held:
    pool.release(one)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, or each answer waits for a delayed acknowledgement

    def do_GET(self) -> None:
        try:
            answer: dict[str, object] = {"count": database.incr("hits")}
        except redis.RedisError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
