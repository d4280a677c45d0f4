"""Calls that are under way, and connections that are open, at the moment in which a process is brought back in a branch."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = """
import asyncio, sys, threading
sys.path.insert(0, {here!r})
import aiohttp, httpx, requests
from relive_recorder import calls
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.ring import MODE
from upstream import Upstream

upstream = Upstream()
address = "http://127.0.0.1:%d" % upstream.port
answer = {{"status": 200, "reason": "OK", "headers": [["X-A", "1"], ["Content-Length", "100"]]}}
asked = []

def find(channel, what):
    asked.append(what["url"][len(address):])
    if what["url"].endswith("/json"):
        return calls.KeptAnswer({{"answer": dict(answer, headers=[["Content-Length", "6"]])}}, b"played")
    return calls.KeptAnswer({{"answer": answer}}, b"half of it" + b"." * 90)

calls.answer_with(find, lambda kind, source: None)

def bring_back():
    upstream.held.wait()
    recorder._ring.words[MODE] = REPLAY
    upstream.release.set()

def check(ask):
    for path in ("/held", "/half-held"):
        recorder._ring.words[MODE] = RECORD
        upstream.held.clear()
        upstream.release.clear()
        threading.Thread(target=bring_back).start()
        status, body = ask(path)
        assert (status, body) == (200, b"half of it" + b"." * 90), (ask.__name__, path, status, body)
    assert asked == ["/held", "/half-held"], (ask.__name__, asked)
    asked.clear()

def by_requests(path):
    answer = requests.get(address + path, timeout=20)
    return answer.status_code, answer.content

def by_httpx(path):
    answer = httpx.get(address + path, timeout=20, verify=False)
    return answer.status_code, answer.content

def by_httpx_async(path):
    async def ask():
        async with httpx.AsyncClient(timeout=20, verify=False) as client:
            answer = await client.get(address + path)
            return answer.status_code, answer.content
    return asyncio.run(ask())

def by_aiohttp(path):
    async def ask():
        async with aiohttp.ClientSession() as session:
            async with session.get(address + path) as answer:
                return answer.status, await answer.read()
    return asyncio.run(ask())

for way in (by_requests, by_httpx, by_httpx_async, by_aiohttp):
    check(way)

# Connections that lie open in pools.
recorder._ring.words[MODE] = RECORD
session, client = requests.Session(), httpx.Client(verify=False)
kept = [session.get(address + "/json").content, client.get(address + "/json").content]

async def in_one_loop():
    async with aiohttp.ClientSession() as pool, httpx.AsyncClient(verify=False) as other:
        kept.append(await (await pool.get(address + "/json")).read())
        kept.append((await other.get(address + "/json")).content)
        recorder._ring.words[MODE] = REPLAY
        upstream.close()
        for _ in range(2):
            kept.append(session.get(address + "/json").content)
            kept.append(client.get(address + "/json").content)
            kept.append(await (await pool.get(address + "/json")).read())
            kept.append((await other.get(address + "/json")).content)

asyncio.run(in_one_loop())
assert kept == [b'{{"n":1}}'] * 4 + [b"played"] * 8, kept
print("as recorded")
"""


def test_they_are_answered_from_the_recording(run_recorded):
    ran = run_recorded(PROGRAM.format(here=str(HERE)))
    assert (ran.status, ran.out, ran.err) == (0, "as recorded\n", "")
