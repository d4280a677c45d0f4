"""A FastAPI service whose answers depend on all that a replay has to bring back: clocks, randomness, the order of sets,
threads, tasks, SQLite, and a server elsewhere that never gives the same answer twice; started by uvicorn.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sqlite3
import threading
import time
import uuid
from typing import Any

from fastapi import FastAPI

try:
    from relive_recorder import calls, context, playing
    from relive_recorder.recorder import REPLAY, recorder
except ImportError:  # without Relive
    recorder = None

app = FastAPI()
state: dict[str, Any] = {"count": 0}
ELSEWHERE = int(os.environ["UPSTREAM"])
database = sqlite3.connect(os.environ["LIVELY_DB"], check_same_thread=False)
database.execute("pragma journal_mode=wal")
# Without numbers of rows: which thread is first at the lock is chance that nobody records.
database.execute("create table if not exists hits (who text primary key) without rowid")
lock = threading.Lock()


def ask_upstream(words: str) -> str:
    """One line there, one line back, on a connection of its own."""
    with socket.create_connection(("127.0.0.1", ELSEWHERE), timeout=20) as sock:
        sock.sendall(words.encode() + b"\n")
        line = sock.makefile().readline()
    if not line:
        raise ConnectionResetError("the other end went away")
    return line.strip()


if recorder is not None:

    class Upstream(calls.Channel):
        kind = "http-call"

    def upstream(words: str) -> str:
        return calls.through(Upstream(), {"words": words}, lambda: ask_upstream(words))

else:
    upstream = ask_upstream


def note(who: str) -> tuple[str, float, str]:
    """What a thread does: reads clock and randomness, writes a row, asks elsewhere."""
    now, name = time.time(), uuid.uuid4().hex
    with lock:
        database.execute("insert into hits (who) values (?)", (name,))
        database.commit()
    return name, now, upstream(f"note {who} {name}")


async def dream(who: str) -> tuple[float, str]:
    """What a task does."""
    await asyncio.sleep(random.random() / 1000)
    name = uuid.uuid4().hex
    return time.monotonic(), await asyncio.to_thread(upstream, f"dream {who} {name}")


@app.get("/do/{what}")
async def do(what: str) -> dict[str, Any]:
    state["count"] += 1
    results: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda who=who: results.update({who: note(who)})) for who in ("left", "right")
    ]
    for thread in threads:
        thread.start()
    tasks = [asyncio.create_task(dream(who)) for who in ("one", "two")]
    dreams = await asyncio.gather(*tasks, asyncio.to_thread(note, "pool"))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    names = {uuid.uuid4().hex[:6] for _ in range(8)}
    (rows,) = database.execute("select count(*) from hits").fetchone()
    told = {
        "what": what,
        "count": state["count"],
        "rows": rows,
        "order": list(names),
        "results": sorted(results.items()),
        "dreams": dreams,
        "random": random.random(),
        "took": time.perf_counter(),
        "wall": time.time_ns(),
    }
    if what == "fail":
        raise RuntimeError(f"no {told['wall']}")
    return told


@app.get("/wait")
async def wait() -> dict[str, str]:
    """Asks for something that takes a while."""
    state["waited"] = await asyncio.to_thread(upstream, "slow")
    return {"answer": state["waited"]}


@app.get("/waited")
async def waited() -> dict[str, str]:
    return {"answer": state["waited"]}


@app.get("/off")
async def off() -> dict[str, str]:
    """The recorder has a fault, and goes."""
    recorder.switch_off(ValueError("a fault"))
    return {"answer": upstream("without a recorder")}


@app.get("/many/{number}")
def many(number: int) -> dict[str, Any]:
    """So many events."""
    values = [time.monotonic_ns() for _ in range(number)]
    return {"last": values[-1], "answer": upstream("many")}


@app.get("/die")
def die() -> None:
    """Killed amid a request that had asked elsewhere before."""
    upstream("before the end")
    os.kill(os.getpid(), 9)


class Numbered:
    """Tells the recorder of requests, where its own hook has not done so."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if recorder is None or scope["type"] != "http" or context.here() is not context.OUTSIDE:
            await self.inner(scope, receive, send)
            return
        about = {"method": scope["method"], "target": scope["path"], "peer": list(scope["client"])}
        number = playing.recognise(about) if recorder.mode() == REPLAY else recorder.next_request()
        token = context.begin(context.Request(number, about))
        recorder.emit("handling-started", about)
        try:
            await self.inner(scope, receive, send)
        finally:
            recorder.emit("handling-ended", {"status": 0})
            context.end(token)


app = Numbered(app)  # type: ignore[assignment]
