"""requests, httpx and aiohttp: recorded on a real server, and answered when it is gone."""

from __future__ import annotations

import json
from pathlib import Path

CANCELLED = "asyncio.exceptions.CancelledError"
HERE = Path(__file__).parent
PROGRAM = """
import asyncio, sys
sys.path.insert(0, {here!r})
import aiohttp, httpx, requests
from relive_recorder import context
from relive_recorder.kinds import http_exchange
from upstream import PATHS, Upstream
from twice import Twice
upstream = Upstream()
address = "http://127.0.0.1:%d" % upstream.port
QUICK = {{"verify": False, "trust_env": False}}  # reading certificates takes longer than all else
STREAMS = ["/json?page=2", "/chunked", "/gzip", "/reset", "/half-then-reset"]

def patience(path):
    return 0.3 if path == "/silent" else 60  # [s] the machine may be busy: who is not silent is waited for

def by_requests(path):
    with requests.Session() as session:
        answer = session.post(address + path, json={{"a": [1]}}, timeout=patience(path))
        body = answer.content
        head = answer.status_code, answer.reason, list(answer.headers.items())
        return head, body[:999], len(body), len(answer.history)

def by_requests_stream(path):
    with requests.get(address + path, stream=True, timeout=60) as answer:
        return answer.status_code, list(answer.iter_content(4096))

def by_httpx(path):
    answer = httpx.post(address + path, json={{"a": 1}}, follow_redirects=True, timeout=patience(path), **QUICK)
    return answer.status_code, answer.reason_phrase, answer.headers.raw, len(answer.content), str(answer.url), answer.http_version

def by_httpx_stream(path):
    with httpx.stream("PUT", address + path, content=iter([b"one", b"two"]), timeout=60, **QUICK) as answer:
        return answer.status_code, b"".join(answer.iter_bytes())

def by_httpx_async(path):
    async def ask():
        async with httpx.AsyncClient(timeout=patience(path), **QUICK) as client:
            answer = await client.get(address + path)
            answer.raise_for_status() if path == "/missing" else None
            return answer.status_code, answer.headers.raw, len(answer.content)
    return asyncio.run(ask())

def by_aiohttp(path):
    async def ask():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patience(path))) as session:
            async with session.post(address + path, json={{"a": 1}}) as answer:
                body = await answer.read()
                return answer.status, answer.reason, list(answer.headers.items()), len(body), len(answer.history), str(answer.url)
    return asyncio.run(ask())

def by_aiohttp_stream(path):
    async def ask():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            async with session.get(address + path) as answer:
                body = [part async for part in answer.content.iter_chunked(64)]
                return answer.status, b"".join(body)
    return asyncio.run(ask())

def not_read():
    with requests.get(address + "/json", stream=True, timeout=60) as answer:
        return answer.status_code

async def given_up(path, asking, reading):
    # Cancelled by a time-out of the service's own.
    try:
        answer = await asyncio.wait_for(asking(address + path), 0.3 if path == "/silent" else 60)
        return await asyncio.wait_for(reading(answer), 0.3)
    except asyncio.TimeoutError:
        return "timed out"

def aiohttp_given_up():
    async def ask():
        async with aiohttp.ClientSession() as session:
            return await given_up("/silent", session.get, lambda answer: answer.read())
    return asyncio.run(ask())

def aiohttp_body_given_up():
    async def ask():
        async with aiohttp.ClientSession() as session:
            return await given_up("/half-silent", session.get, lambda answer: answer.read())
    return asyncio.run(ask())

def httpx_given_up():
    async def ask():
        async with httpx.AsyncClient(timeout=60, **QUICK) as client:
            return await given_up("/silent", client.get, lambda answer: answer.aread())
    return asyncio.run(ask())

def waiting_for_a_connection():
    # The only connection is that of an answer that nobody reads.
    async def ask():
        token = context.begin(context.Request(1, {{}}))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            kept = await session.get(address + "/chunked")
            http_exchange.report_unread(1)
            context.end(token)
            return kept.status, await given_up("/silent", session.get, lambda answer: answer.read())
    return asyncio.run(ask())

ways = [by_requests, by_requests_stream, by_httpx, by_httpx_stream, by_httpx_async, by_aiohttp, by_aiohttp_stream]
calls = [(way.__name__ + " " + path, lambda way=way, path=path: way(path)) for way in ways
         for path in (STREAMS if "stream" in way.__name__ else PATHS)]
calls += [("not read", not_read)]
calls += [(one.__name__, one) for one in (aiohttp_given_up, aiohttp_body_given_up, httpx_given_up, waiting_for_a_connection)]
port, address_of_nobody = upstream.port, "http://127.0.0.1:1"

def refused(way):
    global address
    address, before = address_of_nobody, address
    try:
        return way("/json")
    finally:
        address = before

# A stream of which nothing was sent is not known: httpx lets it be read once.
calls += [(way.__name__ + " refused", lambda way=way: refused(way)) for way in ways if way is not by_httpx_stream]
Twice(("http-call",)).run(calls, upstream.close)
"""


def test_what_was_recorded_comes_back(run_recorded):
    ran = run_recorded(PROGRAM.format(here=str(HERE)))
    assert (ran.status, ran.err) == (0, "")
    told = {name: rest for name, *rest in json.loads(ran.out)}
    for name, (before, after, recorded, played, unasked) in told.items():
        assert after == before, name
        assert [without_args(event) for event in played] == [without_args(event) for event in recorded], name
        # One call is one event, whatever stands on what; aiohttp asks again when a connection broke.
        asked_again = "stream" in name and "aiohttp" in name and name.endswith("/reset")
        if name == "waiting_for_a_connection":
            assert [event[1].get("error", {}).get("type") for event in recorded] == [None, CANCELLED], (
                recorded
            )
            continue
        redirected = "/redirect" in name and name.split()[0] not in ("by_httpx_stream", "by_httpx_async")
        assert len(recorded) == 2 if asked_again or redirected else len(recorded) == 1, name
        assert unasked == 0, name
    for name in ("aiohttp_given_up", "aiohttp_body_given_up", "httpx_given_up"):
        assert told[name][0] == "'timed out'"
        assert told[name][2][0][1]["error"]["type"] == CANCELLED
    assert told["waiting_for_a_connection"][0] == "(200, 'timed out')"
    assert told["not read"][2][0][1]["whole"] is False
    assert told["by_httpx_stream /json?page=2"][2][0][1]["asked"]["body"] == "onetwo"


def without_args(event):
    """An error that wraps another is rebuilt with that one's text in its place."""
    kind, fields, length = event
    error = {name: value for name, value in fields.get("error", {}).items() if name != "args"}
    return kind, {**fields, "error": error}, length
