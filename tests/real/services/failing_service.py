"""A service that fails in the way that the path of a request names. Usage: failing_service.py PORT [log]

With ``log`` it logs exceptions, and else prints them.
"""

import ctypes
import logging
import os
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

libc = ctypes.CDLL(None)
prices = {"tea": 3}


def deadlock_in_python():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def deadlock_in_c():
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def log_twice():
    try:
        int("none")
    except ValueError:
        logging.exception("no number")
    return compute_price()


def crash_in_child():
    if os.fork() == 0:
        ctypes.string_at(0)
    os.wait()


def eat_memory():
    eaten = []
    while True:
        eaten.append(bytearray(os.urandom(1 << 20)))


def set_price():
    prices["tea"] = None


def compute_price():
    return prices["tea"] * 2


ACTIONS = {
    "/ok": os.getpid,
    "/exit": lambda: os._exit(3),
    "/segv": lambda: ctypes.string_at(16),
    "/abort": os.abort,
    "/child": crash_in_child,
    "/hang-python": deadlock_in_python,
    "/hang-c": deadlock_in_c,
    "/memory": eat_memory,
    "/poison": set_price,
    "/price": compute_price,
    "/logged-twice": log_twice,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, text = 200, ""
        if self.path == "/hang-up":
            self.close_connection = True
            return
        try:
            text = repr(ACTIONS[self.path]())
        except Exception:
            if sys.argv[2:]:
                logging.exception("failed")
            else:
                traceback.print_exc()
            status = 500
        body = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
