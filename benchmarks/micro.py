"""What commits on top of others cost, after every request of a Python service, in pairs with raw ``criu dump --leave-running``.

    python benchmarks/micro.py [--megabytes 14 --megabytes 100] [--requests 100] [--kept N] [--threads N] [--json]

For each request: it is answered, a micro-commit is taken and stored; every tenth time raw CRIU dumps the same process then.
*pause*: how long the process stood still, as the tracker and CRIU measure it; *durable*: until the commit was safely on disk;
*bytes*: what the directory of the store grew by. Full commits that were taken instead are counted, and not among the pauses.
``--kept``: so many clients keep their connections open meanwhile. ``--threads``: the service has so many; all but one wait.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from burst import free_port, wait_for

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import capture
from relive.checkpoint.kernel_trust import KernelTrust
from relive.checkpoint.micro_commits import MicroCommits
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import Watchdog
from relive.config import load_settings
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.model.commit import CommitId, Trigger
from relive.store import Store

SERVICE = """
import json, socket, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
held = bytearray(int(sys.argv[2]) << 20)
held[:] = bytes(range(1, 251)) * (len(held) // 250 + 1)
counts, kept = {}, []
listener = socket.create_server(("127.0.0.1", int(sys.argv[3])))
threading.Thread(target=lambda: [kept.append(listener.accept()) for _ in range(int(sys.argv[4]))]).start()
for _ in range(int(sys.argv[5]) - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        counts[len(counts) % 1000] = counts.get(len(counts) % 1000, 0) + 1
        body = json.dumps({"requests": len(counts), "path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
BARE = 14  # [MB] of Python itself
RAW_EVERY = 10


def get(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()


def size_of(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def dump_raw(tools: CriuTools, pid: int, directory: Path) -> tuple[float, float]:
    """Wall time and frozen time in ms."""
    directory.mkdir()
    command = [
        tools.criu,
        "dump",
        "-t",
        str(pid),
        "-D",
        directory,
        "--leave-running",
        "--network-lock",
        "skip",
    ]
    options = ["--manage-cgroups=ignore", "--tcp-established", "--ext-unix-sk", "-o", "log"]
    began = time.perf_counter()
    subprocess.run([*command, *options], check=True, env=tools.environment(), stdout=subprocess.DEVNULL)
    wall = (time.perf_counter() - began) * 1e3
    frozen = read_entries(directory / "stats-dump", pb.StatsEntry)[0].dump.frozen_time / 1e3
    shutil.rmtree(directory)
    return wall, frozen


def measure(megabytes: int, requests: int, kept: int, threads: int, home: Path) -> dict[str, object]:
    settings = load_settings(home=home, tools=load_settings().tools_path, micro=True)
    tools, port, beside = CriuTools(settings.tools_path), free_port(), free_port()
    service = subprocess.Popen(
        [
            *(sys.executable, "-c", SERVICE, str(port), str(max(0, megabytes - BARE))),
            *(str(beside), str(kept), str(threads)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pauses: list[float] = []
    durables: list[float] = []
    sizes: list[float] = []
    raw: list[tuple[float, float]] = []
    full = 0
    parents: list[CommitId] = []
    clients: list[socket.socket] = []
    store = Store(settings.store)
    micro = MicroCommits(tools, store, KernelTrust(home), SuspectCaptures(home))
    try:
        wait_for(port)
        clients = [socket.create_connection(("127.0.0.1", beside)) for _ in range(kept)]
        with Watchdog(tools.watchdog) as watchdog:
            for number in range(requests):
                get(port)
                before, micro.reason = size_of(settings.store), "a full commit"
                began = time.perf_counter()
                taken = capture(
                    process_target(service.pid),
                    Trigger.MANUAL,
                    settings=settings,
                    store=store,
                    watchdog=watchdog,
                    micro=micro,
                )
                parents = [taken.store(store, parents).id]
                if micro.reason is None:
                    pauses.append(taken.pause_us / 1e3)
                    durables.append((time.perf_counter() - began) * 1e3)
                    sizes.append(size_of(settings.store) - before)
                else:
                    full += 1
                if number % RAW_EVERY == 0:
                    raw.append(dump_raw(tools, service.pid, home / "raw"))
    finally:
        for client in clients:
            client.close()
        micro.close()
        store.close()
        service.kill()
        service.wait()
    return {
        "megabytes": megabytes,
        "kept": kept,
        "threads": threads,
        "commits": len(pauses),
        "full": full,
        "pause_ms": quantiles(pauses),
        "durable_ms": quantiles(durables),
        "bytes": statistics.median(sizes) if sizes else None,
        "raw_wall_ms": quantiles([wall for wall, _ in raw]),
        "raw_frozen_ms": quantiles([frozen for _, frozen in raw]),
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "least": round(ordered[0], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, action="append")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--kept", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for megabytes in options.megabytes or [14, 100]:
        home = Path(tempfile.mkdtemp(prefix="relive-micro-"))
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            found.append(measure(megabytes, options.requests, options.kept, options.threads, home))
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"load": load, "measured": found}))
        return
    print(f"load {load:.1f} on {os.cpu_count()} processors")
    for row in found:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
