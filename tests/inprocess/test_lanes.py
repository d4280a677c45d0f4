"""Which thread or task an event is told of: the same with the part in C and without it, however loops begin and end."""

from __future__ import annotations

from relive.recording.events import EventKind

from .conftest import each_python

PROGRAM = """
import asyncio, contextvars, os, sys, threading, time, warnings
from relive_recorder import context
from relive_recorder.recorder import recorder
assert (recorder.quick is not None) is QUICK

# Threads that have ended may still be counted when it forks.
warnings.filterwarnings("ignore", "This process", DeprecationWarning)

def note(about):
    recorder.emit("note", {"about": about})

async def child(name):
    note(f"{name} begins")
    await asyncio.sleep(0)
    note(f"{name} ends")

async def request(number):
    context.begin(context.Request(number, {}))
    loop = asyncio.get_running_loop()
    note("handler")
    tasks = [asyncio.create_task(child(f"child {n}")) for n in range(2)]
    called = asyncio.Event()
    loop.call_soon(lambda: (note("callback"), called.set()))
    await called.wait()
    await asyncio.gather(*tasks)
    here = contextvars.copy_context()
    await loop.run_in_executor(None, here.run, note, "worker in a copy")
    await loop.run_in_executor(None, note, "worker")
    other = threading.Thread(target=lambda: asyncio.run(another()))
    other.start()
    other.join()
    note("handler again")

async def another():
    note("another loop")
    await asyncio.create_task(child("child of another loop"))

note("no loop")
for number in (1, 2):
    asyncio.run(request(number))
    note("no loop any more")

async def forking():
    context.begin(context.Request(3, {}))
    note("before")
    if os.fork() == 0:
        note("forked")  # where asyncio says that no loop runs
        asyncio._set_running_loop(None)
        asyncio.run(request(4))
        os._exit(0)
    os.wait()
    note("after")

asyncio.run(forking())
"""


@each_python
def test_lanes_are_the_same_with_the_part_in_c_and_without(run_recorded, tmp_path, python):
    told = []
    for with_it in (True, False):
        for ring in (tmp_path / "rings").glob("*"):
            ring.unlink()
        ran = run_recorded(PROGRAM.replace("QUICK", str(with_it)), python, quick=with_it)
        assert (ran.status, ran.err) == (0, "")
        told.append(
            [(event.request, event.fields["lane"], event.fields["about"]) for event in ran.of(EventKind.NOTE)]
        )
    assert told[0] == told[1]
    assert len(told[0]) == 1 + 2 * 13 + 3 + 12


REFERENCES = """
import asyncio, gc, os, sqlite3, sys, time, weakref
from relive_recorder import context
from relive_recorder.recorder import RECORD, recorder
from relive_recorder.servers import asgi
assert recorder.quick is not None
database = sqlite3.connect(":memory:")

async def app(scope, receive, send):
    await receive()
    await asyncio.create_task(nothing())
    time.time(), database.execute("SELECT ?", (1,)).fetchone(), database.execute("SELECT 1").fetchall()
    for wrong in (("SELECT nothing",), ("SELECT ?", (1, 2)), ("SELECT ?", (object(),)), (5,)):
        try:
            database.execute(*wrong)
        except (sqlite3.Error, TypeError, ValueError):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"whole"})

async def nothing():
    pass

async def receive():
    return {"type": "http.request", "body": b""}

async def send(message):
    pass

class Scope(dict):
    pass

class Loop(asyncio.SelectorEventLoop):
    pass

async def ask(count, kind):
    for _ in range(count):
        scope = kind(type="http", method="GET", path="/a", raw_path=b"/a", query_string=b"b=c", headers=[(b"host", b"h")])
        scope["client"] = "127.0.0.1", 5
        scope["headers"] += [(b"cookie", b"a=bbbbbbbbbbbb"), (b"authorization", b"Bearer abcdefgh12345678")]
        await asyncio.get_running_loop().create_task(asgi.RecordedAsgi(app)(scope, receive, send))

def run(count, kind):
    loop = Loop()
    loop.run_until_complete(ask(count, kind))
    loop.close()
    return weakref.ref(loop)

def grown(count, kind):
    before = sys.getallocatedblocks()
    run(count, kind)
    return sys.getallocatedblocks() - before

gc.collect()
gc.disable()
for kind in (dict, Scope):  # by the part in C, and by Python code
    run(50, kind)
    gc.collect()
    # Of 288 requests not one object each is left: nothing of theirs is held, nor is it garbage that only a collection finds.
    # What the recorder keeps of each for a while, it lets go of after some 32.
    few = min(grown(32, kind) for _ in range(5))
    many = min(grown(320, kind) for _ in range(5))
    if many - few > 144:
        print("left", kind.__name__, few, many)
held = run(3, dict)
gc.collect()
print("loops", held() is None, recorder.mode() == RECORD)
"""


@each_python
def test_nothing_of_a_request_is_left_behind(run_recorded, python):
    ran = run_recorded(REFERENCES, python, off=["random"])
    assert (ran.status, ran.err, ran.out) == (0, "", "loops True True\n")
    assert len(ran.of(EventKind.HANDLING_ENDED)) > 0
