"""What happens while a call is performed is part of it: recorded as that, and neither answered nor missed in a replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relive.recording.events import EventKind, is_within_a_call

HERE = Path(__file__).parent
# A request is handled twice: really, and then with the answers of the first time, of which parts of calls were left out as
# Relive leaves them out. Prints what is compared of both, one line each.
BEGINNING = f"""
import asyncio, base64, json, logging, os, sqlite3, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
from upstream import Upstream
from relive_recorder import context
from relive_recorder.calls import Channel, through, through_async
from relive_recorder.recorder import recorder

class Echo(Channel):
    kind = "http-call"

logging.basicConfig(level=logging.INFO, filename=os.devnull)
upstream = Upstream()
address = "http://127.0.0.1:%d" % upstream.port
tape = []
put = recorder._put

def noted(seq, meta, data):
    _, _, _, kind, _, lane, number, fields = json.loads(meta)
    tape.append([seq, kind, lane, number, fields, base64.b64encode(data).decode()])
    return put(seq, meta, data)

def now():
    return time.time()

def in_thread(work):
    return asyncio.get_running_loop().run_in_executor(None, work)

def told():
    mine = [one for one in tape if one[3] == 1 and one[2] < context.WITHIN]
    return sorted((json.dumps([kind, lane, fields.get("asked"), fields.get("value"), fields.get("text")])
                   for _, kind, lane, _, fields, _ in mine))

def bring_back():
    directory = recorder.options.rings + "/answers"
    os.makedirs(directory)
    lines = [{{"format": "relive-answers", "version": 1}}] + [one for one in tape if one[2] < context.WITHIN]
    with open("%s/%d.jsonl" % (directory, os.getpid()), "w") as file:
        file.write("".join(json.dumps(line) + "\\n" for line in lines))
    recorder._seq = 0
    recorder._ring.words[3] = 2
    recorder._ring.words[2] += 2

def twice(handle):
    recorder._put = noted
    results = []
    for again in (False, True):
        if again:
            bring_back()
            upstream.close()
            recorder.mode()
            del tape[:]
        token = context.begin(context.Request(1, {{}}))
        results.append(handle())
        context.end(token)
        print(json.dumps([told(), repr(results[-1])]))
    assert results[0] == results[1], results
"""
THROUGH = """
def token():
    logging.info("a token is fetched")
    threading.Thread(target=now).start()
    return through(Echo(), {"text": "token"}, now)

def inner(number):
    return time.time(), token()

async def inner_async():
    await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
    time.time()
    return await through_async(Echo(), {"text": "async token"}, lambda: asyncio.sleep(0, token()))

def beside():
    started = threading.Thread(target=now)
    started.start()
    started.join()
    return time.time()

async def main():
    first = await through_async(Echo(), {"text": "async"}, inner_async)
    return first, *await asyncio.gather(in_thread(now), in_thread(beside))

database = sqlite3.connect(":memory:", isolation_level=None)
database.create_function("ask", 1, lambda number: str(token()))

def handle():
    return [through(Echo(), {"text": "outer"}, lambda: inner(1)), beside(), asyncio.run(main()),
            database.execute("select ask(1)").fetchall(), beside()]
twice(handle)
"""
HTTPX = """
import httpx
def body():
    yield str(time.time()).encode()

async def pieces():
    yield str(time.time()).encode()

async def main():
    async with httpx.AsyncClient() as client:
        said = (await client.post(address + "/json", content=pieces())).text
    return said, await asyncio.gather(in_thread(now), in_thread(now))

def handle():
    return httpx.post(address + "/json", content=body()).text, time.time(), asyncio.run(main())
twice(handle)
"""
AIOHTTP = """
import aiohttp
async def main():
    async with aiohttp.ClientSession() as session:
        async with session.get(address.replace("127.0.0.1", "localhost") + "/json") as answer:
            said = await answer.text()
    return said, await asyncio.gather(in_thread(now), in_thread(now))
twice(lambda: asyncio.run(main()))
"""
REQUESTS = """
import requests
class Token(requests.auth.AuthBase):
    def __call__(self, request):
        request.headers["X-Token"] = requests.get(address + "/json").text + str(time.time())
        return request

def handle():
    with requests.Session() as session:
        return session.get(address + "/chunked", auth=Token()).text, time.time()
twice(handle)
"""


@pytest.mark.parametrize(
    "program", [THROUGH, HTTPX, AIOHTTP, REQUESTS], ids=["through", "httpx", "aiohttp", "requests"]
)
def test_a_replay_goes_the_same_way_outside_of_calls(run_recorded, program):
    ran = run_recorded(BEGINNING + program, quick=False)  # the programs look into the part in Python
    assert (ran.status, ran.err) == (0, ""), ran.out
    recorded, replayed = map(json.loads, ran.out.splitlines())
    assert replayed == recorded
    assert not ran.of(EventKind.MISS)


def test_parts_of_a_call_are_told_as_such_and_calls_of_a_local_one_are_none(run_recorded):
    once = THROUGH.replace("twice(handle)", "context.begin(context.Request(1, {})); handle()")
    ran = run_recorded(BEGINNING + once)
    assert (ran.status, ran.err) == (0, "")
    asked = [
        (event.fields["asked"].get("text", "query"), is_within_a_call(event))
        for event in ran.events
        if "asked" in event.fields and event.request == 1 and event.kind is not EventKind.FILE_READ
    ]
    assert sorted(asked) == [
        ("async", False),
        ("async token", True),
        ("outer", False),
        ("query", False),
        ("token", False),
        ("token", True),
        ("token", True),
    ]
    assert sorted(is_within_a_call(event) for event in ran.of(EventKind.LOG_RECORD)) == [False, True, True]
