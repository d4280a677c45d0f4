"""Putting a branch back to its commit: in place by writing what has changed, in pairs with restoring it anew.

    python benchmarks/rollback.py [--pages 10 --pages 400 --pages 4000] [--rounds 100] [--megabytes 20] [--json]

For each round a Python service writes to so many pages of its memory, at random; then its branch is put back in
place, and every tenth time another branch is restored anew. *in place*: as an API call; *stood still*: as the rewinder measures it
(native); *anew*: as an API call. In the end all memory and registers are compared with those of a branch that was just restored.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from burst import free_port, wait_for

from relive.checkpoint.dump import capture
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import Watchdog
from relive.config import Settings, load_settings
from relive.model.commit import CommitId, Trigger
from relive.operations.restoring import BranchParams, bring_to_life
from relive.sandbox.branch import Branch
from relive.sandbox.publish import publish
from relive.sandbox.rewinder import put_back
from relive.store import Store

SERVICE = """
import os, random, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
held = bytearray(os.urandom(max(20, int(sys.argv[2])) << 20))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        for page in random.sample(range(len(held) // 4096), int(self.path[1:] or 0)):
            held[page * 4096] ^= 255
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words): pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
ANEW_EVERY = 10


def write_pages(port: int, pages: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"/{pages}")
    connection.getresponse().read()
    connection.close()


def restore(settings: Settings, store: Store, commit: CommitId, *, rewinds: bool) -> Branch:
    return bring_to_life(settings, store, commit, BranchParams(ref=commit), is_owned=True, rewinds=rewinds)


def measure(
    settings: Settings, store: Store, commit: CommitId, port: int, pages: int, rounds: int
) -> dict[str, object]:
    in_place: list[float] = []
    still: list[float] = []
    anew: list[float] = []
    written: list[int] = []
    with contextlib.ExitStack() as stack:
        branch = restore(settings, store, commit, rewinds=True)
        stack.callback(branch.stop)
        host_port = free_port()
        publish(branch, "127.0.0.1", host_port, port)
        for number in range(rounds):
            write_pages(host_port, pages)
            began = time.perf_counter()
            done = put_back(branch.directory)
            in_place.append((time.perf_counter() - began) * 1e3)
            still.append(done.paused_ns / 1e6)
            written.append(done.pages)
            if number % ANEW_EVERY == 0:
                began = time.perf_counter()
                other = restore(settings, store, commit, rewinds=False)
                anew.append((time.perf_counter() - began) * 1e3)
                other.stop()
        fresh = restore(settings, store, commit, rewinds=True)
        stack.callback(fresh.stop)
        write_pages(host_port, pages)
        is_same = (
            put_back(branch.directory, verifies=True).digest
            == put_back(fresh.directory, verifies=True).digest
        )
    return {
        "pages": pages,
        "written": statistics.median(written),
        "stood_still_ms": quantiles(still),
        "in_place_ms": quantiles(in_place),
        "anew_ms": quantiles(anew),
        "same_as_fresh": is_same,
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "least": round(ordered[0], 3),
    }


def measure_all(home: Path, megabytes: int, all_pages: Sequence[int], rounds: int) -> list[dict[str, object]]:
    settings = load_settings(home=home, tools=load_settings().tools_path)
    store, port = Store(settings.store), free_port()
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(port), str(megabytes)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(port)
        with Watchdog(settings.tools_path / "relive-watchdog") as watchdog:
            target = process_target(service.pid)
            taken = capture(target, Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog)
            commit = taken.store(store, []).id
        return [measure(settings, store, commit, port, pages, rounds) for pages in all_pages]
    finally:
        store.close()
        service.kill()
        service.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--megabytes", type=int, default=20, help="of memory that is written to; at least 20")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="relive-rollback-"))
    try:
        found = measure_all(home, options.megabytes, options.pages or [10, 400, 4000], options.rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"load": load, "measured": found}))
        return
    print(f"load {load:.1f} on {os.cpu_count()} processors")
    for row in found:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
