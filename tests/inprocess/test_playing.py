"""A process that finds itself in a branch: its calls and readings are answered from what Relive laid beside its ring.

The branch is made without CRIU: another epoch and mode are written into the ring, as a branch's file has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from relive.recording.events import EventKind

from .conftest import Ran, each_python

BEGINNING = """
import asyncio, json, os, sys, threading, time
from relive_recorder import calls, context, playing
from relive_recorder.calls import Channel, through, through_async
from relive_recorder.context import Request
from relive_recorder.recorder import recorder

class Echo(Channel):
    kind = "http-call"

def never():
    raise AssertionError("performed really")

def ask(text, perform=never):
    return through(Echo(), {"text": text}, perform)

def bring_back(events, header=None, raw=None, name=None):
    directory = recorder.options.rings + "/answers"
    os.makedirs(directory, exist_ok=True)
    header = dict({"format": "relive-answers", "version": 1}, **(header or {}))
    lines = [header] + events
    text = "".join(json.dumps(line) + "\\n" for line in lines) if raw is None else raw
    with open("%s/%s" % (directory, name or "%d.jsonl" % os.getpid()), "w") as file:
        file.write(text)
    if name is None:
        recorder._ring.words[3] = 2
        recorder._ring.words[2] += 2

def call(seq, text, answer, lane=1, request=0, **more):
    return [seq, "http-call", lane, request, dict({"asked": {"text": text}, "answer": answer}, **more), ""]

def reading(seq, kind, source, value, lane=1, request=0):
    return [seq, kind, lane, request, {"source": source, "value": value}, ""]

here = recorder.seq
"""


@pytest.fixture
def play(run_recorded: Callable[..., Ran]) -> Callable[..., Ran]:
    def run(program: str, *python: str, **options: object) -> Ran:
        return run_recorded(BEGINNING + program, *python, **options)

    return run


def printed(ran: Ran) -> list[Any]:
    assert (ran.status, ran.err) == (0, ""), ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@each_python
def test_calls_are_answered_by_what_was_asked_not_by_their_place(play, python):
    ran = play(
        """
bring_back([call(here, "old", 0), call(here + 1, "a", 1), call(here + 2, "b", 2), call(here + 3, "a", 3)])
print(ask("b")); print(ask("a")); print(ask("a"))
try:
    ask("old")
except ConnectionError as error:
    print(json.dumps(str(error)))
""",
        python,
    )
    *answers, said = printed(ran)
    assert answers == [2, 1, 3]
    assert said == "the recording has no answer to this http-call"
    assert [event.fields.get("played") for event in ran.of(EventKind.HTTP_CALL)] == [True] * 3


@each_python
def test_clocks_and_randomness_give_what_was_recorded_and_clocks_go_on_from_there(play, python):
    ran = play(
        """
bring_back([reading(here + 1, "clock", "time.time", 100.5), reading(here + 2, "clock", "time.time", 101.5),
            reading(here + 3, "random", "os.urandom", {"$": ["bytes", "AAEC"]})])
first, second = time.time(), time.time()
after = time.time(), time.time()
drawn = os.urandom(3), os.urandom(16), os.urandom(16)
print(first, second, sep="\\n")
print(json.dumps(101.5 < after[0] < after[1] < 161))
print(json.dumps([drawn[0].hex(), drawn[1] != drawn[2]]))
print(json.dumps(time.monotonic() < 1e9))
""",
        python,
    )
    assert printed(ran) == [100.5, 101.5, True, ["000102", True], True]


@each_python
def test_each_request_has_its_own_answers_whatever_order_they_come_in(play, python):
    ran = play(
        """
def started(seq, number, target, body=""):
    about = {"method": "GET", "target": target, "peer": ["h", number]}
    return [seq, "handling-started", 1, number, about, body]

bring_back([started(here + 1, 7, "/a"), started(here + 2, 8, "/b"), started(here + 3, 9, "/b"),
            call(here + 4, "q", "of a", request=7), call(here + 5, "q", "of b", request=8),
            call(here + 6, "q", "of the other b", request=9)])
for target, peer in (("/b", 9), ("/a", 1), ("/b", 5), ("/c", 1)):
    recorder.mode()
    number = playing.recognise({"method": "GET", "target": target, "peer": ("h", peer)})
    token = context.begin(Request(number, {}))
    try:
        print(json.dumps([number, ask("q")]))
    except ConnectionError:
        print(number)
    context.end(token)
""",
        python,
    )
    assert printed(ran) == [[9, "of the other b"], [7, "of a"], [8, "of b"], 10]


def test_a_body_tells_requests_apart(play):
    ran = play("""
import base64
def started(seq, number, body):
    return [seq, "handling-started", 1, number, {"method": "POST", "target": "/"}, base64.b64encode(body).decode()]
bring_back([started(here + 1, 1, b"one"), started(here + 2, 2, b"two")])
recorder.mode()
about = {"method": "POST", "target": "/"}
print(playing.recognise(dict(about, body=b"two")), playing.recognise(dict(about, body=b"one")), sep="\\n")
print(playing.recognise(dict(about, body=b"three")))
""")
    assert printed(ran) == [2, 1, 3]


def test_a_miss_names_the_nearest_call_and_what_differs(play):
    ran = play("""
def of(seq, **asked):
    return [seq, "http-call", 1, 0, {"asked": asked, "answer": None}, ""]
bring_back([of(here + 1, url="/x", body=[1, 2]), of(here + 2, url="/y", body=[1, 3, 4], extra=1)])
try:
    through(Echo(), {"url": "/x", "body": [1, 3]}, never)
except ConnectionError as error:
    print(json.dumps(str(error)))
""")
    assert printed(ran) == [
        "the recording has no answer to this http-call; the nearest one differs in $.body[1]"
    ]
    (miss,) = ran.of(EventKind.MISS)
    assert miss.fields["nearest"] == {"url": "/x", "body": [1, 2]}
    assert miss.fields["differs"] == ["$.body[1]"]
    assert miss.fields["policy"] == "fail"


@each_python
def test_a_miss_passes_where_policy_says_so(play, python):
    ran = play(
        """
bring_back([], {"policy": {"http-call": "pass"}})
print(ask("new", lambda: 5))
async def real():
    return 6
async def main():
    return await through_async(Echo(), {"text": "newer"}, real)
print(asyncio.run(main()))
""",
        python,
    )
    assert printed(ran) == [5, 6]
    assert [event.fields["policy"] for event in ran.of(EventKind.MISS)] == ["pass", "pass"]
    assert [event.fields["answer"] for event in ran.of(EventKind.HTTP_CALL)] == [5, 6]


def test_a_call_that_was_under_way_is_answered_when_its_other_end_is_gone(play):
    ran = play("""
def broken():
    bring_back([call(here + 1, "a", "recorded"), call(here + 2, "a", "second")])
    raise ConnectionResetError("gone")
def in_time():
    bring_back([call(here + 1, "a", "first"), call(here + 2, "a", "second")])
    return "first"
print(json.dumps([ask("a", broken), ask("a")]))
""")
    assert printed(ran) == [["recorded", "second"]]


def test_an_event_that_was_being_written_at_the_commit_is_whole_in_the_branch(play):
    """The commit comes between the bytes of the record and the head that makes them count."""
    ran = play(
        """
ring = recorder._ring
real = ring._put
def interrupted(record):
    real(record)
    ring._put = real
    bring_back([])
ring._put = interrupted
recorder.emit("note", {"about": "during"})
recorder.emit("note", {"about": "after"})
""",
        quick=False,
    )
    assert (ran.status, ran.err) == (0, "")
    assert [event.fields["about"] for event in ran.events] == ["during", "after"]


def test_an_answer_that_came_just_before_the_commit_is_not_given_twice(play):
    ran = play("""
def in_time():
    bring_back([call(here + 1, "a", "first"), call(here + 2, "a", "second")])
    return "first"
print(json.dumps([ask("a", in_time), ask("a")]))
""")
    assert printed(ran) == [["first", "second"]]


def test_a_reading_that_was_made_just_before_the_commit_is_not_given_twice(play):
    """The commit comes between the reading of the clock and its event."""
    ran = play("""
from relive_recorder.kinds import clock
def real():
    bring_back([reading(here + 1, "clock", "time.time", 5.5), reading(here + 2, "clock", "time.time", 6.5)])
    return 5.5
print(clock._reading("time.time", real)(), time.time(), sep="\\n")
""")
    assert printed(ran) == [5.5, 6.5]


@each_python
def test_errors_are_raised_again_as_what_they_were(play, python):
    ran = play(
        """
def failed(seq, kind, *args):
    error = {"type": kind, "args": {"$": ["tuple", list(args)]}}
    return [seq, "http-call", 1, 0, {"asked": {"text": kind}, "error": error}, ""]
kinds = "builtins.TimeoutError", "os.system", "no.such.Thing", "builtins.print"
bring_back([failed(here + 1 + n, kind, "x") for n, kind in enumerate(kinds)])
for kind in kinds:
    try:
        ask(kind)
    except Exception as error:
        print(json.dumps(type(error).__name__))
""",
        python,
    )
    assert printed(ran) == ["TimeoutError", "NoAnswer", "NoAnswer", "NoAnswer"]


@each_python
def test_a_forked_child_plays_what_the_recorded_child_did(play, python):
    ran = play(
        """
bring_back([call(here + 1, "p", "of the parent")], {"children": [["70-5.jsonl", 0, 1], ["71-6.jsonl", 0, 1]]})
bring_back([call(9, "c", "of the first")], name="70-5.jsonl")
bring_back([call(9, "c", "of the second")], name="71-6.jsonl")
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        try:
            print(json.dumps(ask("c")), flush=True)
        except ConnectionError:
            print('"nobody"', flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
print(json.dumps(ask("p")))
""",
        python,
    )
    assert printed(ran) == ["of the first", "of the second", "nobody", "of the parent"]
    assert len([one for one in ran.of(EventKind.PROCESS_STARTED) if "forked_from" in one.fields]) == 3


def test_a_request_that_another_worker_had_brings_its_answers_along(play):
    ran = play("""
started = [3, "handling-started", 1, 4, {"method": "GET", "target": "/"}, ""]
bring_back([started, call(5, "q", "of the sibling", request=4)], name="99.jsonl")
bring_back([], {"siblings": ["99.jsonl"]})
recorder.mode()
number = playing.recognise({"method": "GET", "target": "/"})
context.begin(Request(number, {}))
print(json.dumps([number, ask("q")]))
""")
    assert printed(ran) == [[1, "of the sibling"]]


HOSTILE = {
    "nothing": "",
    "no header": "[]\n",
    "another format": '{"format": "x"}\n',
    "another version": '{"format": "relive-answers", "version": 2}\n',
    "policy": '{"format": "relive-answers", "version": 1, "policy": {"query": "exec"}}\n',
    "a way out": '{"format": "relive-answers", "version": 1, "siblings": ["../../etc/passwd"]}\n',
    "no event": '{"format": "relive-answers", "version": 1}\n[1, 2]\n',
    "numbers": '{"format": "relive-answers", "version": 1}\n[-1, "clock", 1, 0, {}, ""]\n',
    "deep": '{"format": "relive-answers", "version": 1}\n' + "[" * 200_000 + "\n",
    "torn": '{"format": "relive-answers", "version": 1}\n[1, "clo',
    "code": "import os; os._exit(3)\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_and_the_service_goes_on(play, text):
    ran = play(f"""
bring_back([], raw={text!r})
try:
    ask("a")
except ConnectionError:
    print("missed")
print(time.time() > 0)
""")
    assert (ran.status, ran.out) == (0, "missed\nTrue\n")
    assert len(ran.err.splitlines()) == 1
    assert "are refused" in ran.err


def test_a_link_in_place_of_the_file_is_not_followed(play, tmp_path):
    (tmp_path / "elsewhere").write_text('{"format": "relive-answers", "version": 1}\n')
    ran = play(f"""
os.makedirs(recorder.options.rings + "/answers")
os.symlink({str(tmp_path / "elsewhere")!r}, recorder.options.rings + "/answers/%d.jsonl" % os.getpid())
try:
    bring_back([], raw="")
finally:
    recorder._ring.words[3] = 2
    recorder._ring.words[2] += 2
    recorder.mode()
""")
    assert ran.err.count("are refused") == 1


def test_values_that_cannot_be_read_back_are_a_broken_connection(play):
    ran = play("""
values = [{"$": ["opaque", "x.Y"]}, {"$": ["bytes", 5]}, {"$": ["dict", [[[], 1]]]}, {"$": []}, {"$": ["uuid", [1]]}]
bring_back([call(here + 1 + n, str(n), value) for n, value in enumerate(values)]
           + [[here + 50, "http-call", 1, 0, {"asked": {"text": "file"}, "answer": 1, "file": "../x"}, ""],
              [here + 51, "http-call", 1, 0, {"asked": {"text": "data"}, "answer": 1}, "***"],
              [here + 52, "http-call", 1, 0, {"asked": {"text": "bare"}}, ""]])
for text in [*map(str, range(len(values))), "file", "data", "bare"]:
    try:
        print(ask(text))
    except ConnectionError as error:
        print(json.dumps(type(error).__name__))
""")
    assert printed(ran) == ["NoAnswer"] * 8


@each_python
def test_threads_and_tasks_of_a_request_keep_their_lanes_however_they_race(play, python):
    """Lanes are given when a thread or task is started: the last started may well be the first to do something."""
    ran = play(
        """
def work(name, turn, then):
    turn.wait(); recorder.emit("note", {"about": name}); then.set()

def race(number, order, start):
    token = context.begin(Request(number, {}))
    recorder.emit("note", {"about": "main"})
    turns = [threading.Event() for _ in range(4)]
    then = dict(zip(order, order[1:] + [3]))
    ends = [start(lambda n=n: work(str(n), turns[n], turns[then[n]])) for n in range(3)]
    turns[order[0]].set()
    for end in ends:
        end()
    context.end(token)

def thread(call):
    one = threading.Thread(target=call); one.start(); return one.join

import concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(3)
race(1, [2, 0, 1], thread)
race(2, [1, 2, 0], thread)
race(3, [2, 0, 1], lambda call: pool.submit(call).result)
race(4, [1, 2, 0], lambda call: pool.submit(call).result)

async def main(order):
    recorder.emit("note", {"about": "main"})
    turns = [asyncio.Event() for _ in range(4)]
    then = dict(zip(order, order[1:] + [3]))
    async def one(n):
        await turns[n].wait()
        await asyncio.get_running_loop().run_in_executor(None, recorder.emit, "note", {"about": str(n)})
        turns[then[n]].set()
    ends = [asyncio.ensure_future(one(n)) for n in range(3)]
    turns[order[0]].set()
    await asyncio.gather(*ends)
for number, order in ((5, [2, 0, 1]), (6, [1, 2, 0])):
    context.begin(Request(number, {}))
    asyncio.run(main(order))
""",
        python,
    )
    assert (ran.status, ran.err) == (0, "")
    notes = [event for event in ran.of(EventKind.NOTE) if event.request]
    seen = {(event.request, event.fields["about"]): event.fields["lane"] for event in notes}
    lanes = [[seen[request, name] for name in ("main", "0", "1", "2")] for request in range(1, 7)]
    assert all(len(set(one)) == 4 for one in lanes)
    assert [lanes[0], lanes[2], lanes[4]] == [lanes[1], lanes[3], lanes[5]]
    assert [event.fields["about"] for event in notes if event.request == 1] == ["main", "2", "0", "1"]


def test_workers_of_anyio_keep_their_lanes_and_so_does_what_a_plain_endpoint_starts(play):
    """GIVEN an endpoint that is no coroutine, and starts threads, and one that has several threads at once by anyio
    WHEN they race in another order
    THEN each thread is in the same lane again.
    """
    ran = play("""
import concurrent.futures, anyio, httpx
from fastapi import FastAPI

app = FastAPI()
pool = concurrent.futures.ThreadPoolExecutor(3)
order, turns = [], []

def work(n):
    turns[n].wait()
    recorder.emit("note", {"about": str(n)})
    turns[dict(zip(order, order[1:] + [3]))[n]].set()

@app.get("/plain")
def plain():
    recorder.emit("note", {"about": "main"})
    ends = [pool.submit(work, n) for n in range(2)]
    last = threading.Thread(target=work, args=(2,)); last.start()
    turns[order[0]].set()
    for end in ends:
        end.result()
    last.join()

async def one(n):
    recorder.emit("note", {"about": "task %d" % n})
    await anyio.to_thread.run_sync(work, n)

@app.get("/several")
async def several():
    recorder.emit("note", {"about": "main"})
    async with anyio.create_task_group() as group:
        for n in range(3):
            group.start_soon(one, n)
        turns[order[0]].set()

async def main():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://it") as client:
        for path in ("/plain", "/several"):
            for one in ([2, 0, 1], [1, 2, 0]):
                order[:], turns[:] = one, [threading.Event() for _ in range(4)]
                await client.get(path)

asyncio.run(main())
""")
    assert (ran.status, ran.err) == (0, "")
    notes = [event for event in ran.of(EventKind.NOTE) if event.request]
    seen = {(event.request, event.fields["about"]): event.fields["lane"] for event in notes}
    lanes = [[seen[request, name] for name in ("main", "0", "1", "2")] for request in range(1, 5)]
    assert all(len(set(one)) == 4 for one in lanes)
    assert [lanes[0], lanes[2]] == [lanes[1], lanes[3]]


def test_greenlets_of_a_request_are_lanes_of_their_own(play):
    ran = play("""
import gevent.monkey; gevent.monkey.patch_all()
import gevent

def work(name):
    recorder.emit("note", {"about": name}); gevent.sleep(0); recorder.emit("note", {"about": name})

for number in (1, 2):
    token = context.begin(Request(number, {}))
    recorder.emit("note", {"about": "main"})
    gevent.joinall([gevent.spawn(work, name) for name in ("left", "right")])
    own = threading.Thread(target=work, args=("thread",)); own.start(); own.join()
    context.end(token)
""")
    assert (ran.status, ran.err) == (0, "")
    notes = [event for event in ran.of(EventKind.NOTE) if event.request]
    lanes = [
        [(event.fields["about"], event.fields["lane"]) for event in notes if event.request == request]
        for request in (1, 2)
    ]
    assert lanes[0] == lanes[1]
    assert len(set(lanes[0])) == len({name for name, _ in lanes[0]}) == 4


CHILD = """
import json, sys, time
from relive_recorder.calls import Channel, through
from relive_recorder.recorder import recorder
class Echo(Channel):
    kind = "http-call"
recorder.scrubber.learn("planted-secret")
answers = [time.time()]
for text in sys.argv[1:] + ["with " + recorder.scrubber.text("planted-secret")]:
    try:
        answers.append(through(Echo(), {"text": text}, lambda: "really"))
    except ConnectionError:
        answers.append("nobody")
print(json.dumps(answers))
"""


@each_python
def test_a_process_that_is_started_by_exec_is_known_by_its_command(play, tmp_path, python):
    """GIVEN three recorded processes with commands like these, and one whose command differs in a number
    WHEN processes are started in a replay, one more of them than was recorded
    THEN each has the answers of one of the same command, in order, and the one too many has none.
    """
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    ran = play(
        f"""
import subprocess
command = [sys.executable, {str(child)!r}]
def told(name, text, answer):
    bring_back([reading(1, "clock", "time.time", answer * 1000.5), call(2, text, answer),
                call(3, "with <secret:00000000>", "a secret")], name=name)
told("70-1.jsonl", "a", 1)
told("71-2.jsonl", "a", 2)
told("72-3.jsonl", "b", 3)
started = {{"format": "relive-answers", "version": 1, "started": [
    ["70-1.jsonl", command + ["a"]], ["71-2.jsonl", command + ["a"]], ["72-3.jsonl", command + ["b", "17"]]]}}
with open(recorder.options.rings + "/answers/started.json", "w") as file:
    json.dump(started, file)
for words in (["b", "18"], ["a"], ["a"], ["a"]):
    sys.stdout.write(subprocess.run(command + words, stdout=subprocess.PIPE, check=True).stdout.decode())
""",
        python,
    )
    *known, unknown = printed(ran)
    assert known == [
        [3001.5, 3, "nobody", "a secret"],
        [1000.5, 1, "a secret"],
        [2001.0, 2, "a secret"],
    ]
    assert unknown[1:] == ["nobody", "nobody"]


def test_of_queries_only_a_call_of_the_same_statement_is_near(play):
    ran = play(
        """
class Asked(Echo):
    kind = "query"
def query(seq, statement, *parameters):
    return [seq, "query", 1, 0, {"asked": {"statement": statement, "parameters": list(parameters)}, "answer": 1}, ""]
bring_back([query(here, "CONNECT"), query(here + 1, "insert", "a", 1), query(here + 2, "delete", "a")])
for asked in ({"statement": "insert", "parameters": ["b", 1]}, {"statement": "select", "parameters": []}):
    try:
        through(Asked(), asked, never)
    except calls.NoAnswer as error:
        print(json.dumps(str(error)))
"""
    )
    assert printed(ran) == [
        "the recording has no answer to this query; the nearest one differs in $.parameters[0]",
        "the recording has no answer to this query",
    ]
