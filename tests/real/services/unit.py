"""A service of systemd: it speaks sd_notify(3), takes sockets (sd_listen_fds(3)), and says what it was given.

Its first line on stdout is JSON of that. SIGHUP: it says it reloads. SIGTERM: it says it stops, and goes without a last newline.
"""

import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path


def tell(text):
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(text.encode(), address)


def reload(*_):
    tell("RELOADING=1")
    print("reloaded", flush=True)
    tell("READY=1\nSTATUS=reloaded")


def stop(*_):
    tell("STOPPING=1")
    print("x" * 200_000)
    print("the last words", end="", flush=True)
    sys.exit(0)


def mine(name):
    return os.environ.get(name) == str(os.getpid())


signal.signal(signal.SIGHUP, reload)
signal.signal(signal.SIGTERM, stop)
umask = os.umask(0)
given = {
    "words": sys.argv[1:],
    "user": os.getuid(),
    "directory": str(Path.cwd()),
    "umask": umask,
    "nice": os.nice(0),
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    "nproc": resource.getrlimit(resource.RLIMIT_NPROC),
    "greeting": os.environ.get("GREETING"),
    "sockets": os.environ.get("LISTEN_FDS") if mine("LISTEN_PID") else None,
}
print(json.dumps(given), flush=True)
print("to stderr", file=sys.stderr, flush=True)
tell(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving")
if given["sockets"]:
    served = socket.socket(fileno=3)
    while True:
        client, _ = served.accept()
        with client:
            client.sendall(b"hello")
while True:
    signal.pause()
