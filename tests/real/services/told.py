"""Does what it is told: Python code that is posted runs in it, and its ``answer`` is returned. ``told.py PORT DIRECTORY``."""

import http.server
import os
import sys
import traceback

names = {"open": open, "os": os, "held": {}}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        code = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8", "surrogateescape")
        names["answer"] = None
        try:
            exec(code, names)
        except Exception:
            self.send_error(500, traceback.format_exc().splitlines()[-1])
            return
        body = repr(names["answer"]).encode("utf-8", "surrogateescape")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


os.chdir(sys.argv[2])
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
