"""The client of ``chaos.py``: requests with unique ids, one after the other, to each target at its pace.

    python benchmarks/_chaos_client.py NAME:PORT:PACE...

It writes one line of JSON for each request, and ends with its standard input.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Callable

ANSWER_BOUND = 20.0  # [s] longer than what the harness allows a service


def send_traffic(name: str, port: int, pace: float, out: Callable[[list[object]], None]) -> None:
    """Send requests one after the other for ever; each becomes a line [name, id, began, ended, answered]."""
    connection: http.client.HTTPConnection | None = None
    number = 0
    while True:
        number += 1
        identity = f"{name}-{port}-{number}"
        began = time.monotonic()
        try:
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_BOUND)
            connection.request("POST", f"/add/{identity}", headers={"Content-Length": "0"})
            answer = connection.getresponse()
            answered = json.loads(answer.read()) == identity and answer.status == 200
        except (OSError, http.client.HTTPException, ValueError):
            answered = False
        if not answered and connection is not None:
            connection.close()
            connection = None
        out([name, identity, began, time.monotonic(), answered])
        time.sleep(pace)


def run_client(targets: list[str]) -> None:
    lock = threading.Lock()

    def out(event: list[object]) -> None:
        with lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()

    for target in targets:
        name, port, pace = target.split(":")
        threading.Thread(target=send_traffic, args=(name, int(port), float(pace), out), daemon=True).start()
    sys.stdin.read()  # until the harness ends
    os._exit(0)


if __name__ == "__main__":
    run_client(sys.argv[1:])
