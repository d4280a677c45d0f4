"""Whole programs are recorded the same with the part in C and without, and see nothing of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from .conftest import INPROCESS, each_python

sys.path.insert(0, str(INPROCESS))

sys.path.remove(str(INPROCESS))


GARBAGE = """
import gc, mmap, os, sys, tempfile
from relive_recorder import context, quick, scrub
from relive_recorder.ring import HEADER_BYTES, Ring
native = quick.module
scrub.check_with(native.Checker)
scrubber = scrub.Scrubber()
scrubber.make_checker()
make = lambda fd, capacity, epoch: native.Quick(fd, capacity, epoch, 0, 1024, scrubber, *context.for_quick())
writer = Ring(os.path.join(tempfile.mkdtemp(), "ring"), 1 << 16, 1, make).quick

class Garbage:
    def __init__(self, after):
        self.itself, self.after = self, after

    def __del__(self):
        if self.after:
            Garbage(self.after - 1)
        else:
            headers[0].clear()

# A collection comes with each second object: at one of these it is the error that a name which is no UTF-8 makes.
for after in range(24):
    headers = [["na\\udcffme", "a value of its own"], ["another", "value"]]
    given = "asgi", "GET", "/", None, headers, 3
    gc.disable()
    gc.collect()
    Garbage(after // 2)
    gc.set_threshold(1)
    gc.enable()
    further = {1} if after % 2 else None
    writer.started(*given)
    gc.set_threshold(700)
print("whole")
"""


@each_python
def test_a_finalizer_that_runs_in_between_may_take_away_what_is_written(run_recorded, python):
    ran = run_recorded(GARBAGE, python)
    assert (ran.status, ran.out.split()) == (0, ["whole"])


SAME = """
import asyncio, gc, io, json, logging, os, sqlite3, sys, threading, time, warnings
warnings.simplefilter("ignore")  # of coroutines that are never awaited
sys.path.insert(0, os.path.dirname(__file__))
from relive_recorder.recorder import recorder
from relive_recorder.servers import asgi, wsgi
assert (recorder.quick is not None) is QUICK, "quick"
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE t (a, b, c)")
smile = "\\u00e9\\ud83d\\ude00".encode("utf-16", "surrogatepass").decode("utf-16")
for row in [(1, "x", None), (2.5, "pass=geheim", b"\\xff"), (1 << 40, smile, b"ok")] * 3:
    db.execute("INSERT INTO t VALUES (?, ?, ?)", row)
print(db.execute("SELECT * FROM t").fetchall() == list(db.execute("SELECT * FROM t")))
cursor = db.execute("SELECT a FROM t LIMIT 3")
print(cursor.fetchone(), cursor.fetchmany(1), cursor.fetchone(), cursor.fetchone())
for given in (("SELECT nothing",), ("SELECT ?", (1, 2)), (5,), ()):
    for _ in range(2):
        try:
            db.execute(*given)
        except (sqlite3.Error, TypeError, ValueError) as error:
            print(type(error).__name__)
db.execute("SELECT :a", {"a": 1}).fetchall()
db.commit()
async def app(scope, receive, send):
    logging.getLogger("a").warning("hello %s", scope["path"])
    await asyncio.gather(*[asyncio.create_task(work(n)) for n in range(3)])
    await receive()
    headers = [(b"a", b"b"), (b"set-cookie", b"id=0123456789")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"one" if scope["path"] == "/1" else b"\\xff\\x00"})
    if scope["path"] == "/2":
        raise KeyError("no")
async def work(n):
    time.time(); db.execute("SELECT ?", (n,)).fetchall()
async def ask(path, *headers):
    sent = []
    async def receive():
        return {"type": "http.request", "body": b"body", "more_body": False}
    async def send(message):
        sent.append(message["type"])
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": list(headers)}
    if headers:  # as servers make it
        scope["query_string"] = b"a=b" if path == "/2" else b""
    scope["client"] = ["h", 1]
    try:
        await asgi.RecordedAsgi(app)(scope, receive, send)
    except KeyError:
        print("failed")
    print(sent)
for path, headers in (("/1", [(b"host", b"h")]), ("/2", [(b"cookie", b"a=b; c=dddddddd")]), ("/1?token=abcdef123", [])):
    asyncio.run(ask(path, *headers))
class Pause:
    def __await__(self):
        return (yield "paused")
async def odd(scope, receive, send):
    path, start = scope["path"], {"type": "http.response.start", "status": 201, "headers": [[b"a", b"b"]]}
    if path == "/pieces":
        await send(start)
    for body in (b"one", b"", bytearray(b"two"), b"three") if path in ("/pieces", "/early") else ():
        await send({"type": "http.response.body", "body": body, "more_body": True})
    if path == "/late":
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})
        await send(start)
    if path == "/strange":
        await send({"type": "http.response.push"})
        await send(type("Own", (dict,), {})(start))
    if path == "/nested":
        await asgi.RecordedAsgi(odd)({"type": "http", "path": "/pieces"}, receive, send)
    while path == "/pauses":
        print(path, await Pause())
    return "nobody's business"
class Made:
    def __init__(self, *given):
        self.given = given
    def __await__(self):
        return odd(*self.given).__await__()
async def receive():
    return {"type": "http.disconnect"}
async def send(message):
    time.monotonic_ns()
def steps(path, app=odd, kind="http"):
    scope = {"type": kind, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
    return asgi.RecordedAsgi(app)(scope, receive, send)
def tried(function, *given):
    try:
        print(function.__name__, function(*given))
    except BaseException as raised:
        print(function.__name__, repr(raised))
for path in ("/pieces", "/early", "/late", "/strange", "/nested"):
    for app in (odd, Made):
        print(path, asyncio.run(asyncio.wait_for(steps(path, app), 60)))
for app in (lambda *_: None, lambda *_: 1 / 0, lambda: None):
    tried(steps("/", app).send, None)
asyncio.run(steps("/", kind="lifespan"))
asyncio.run(steps("/", kind="websocket"))
for ending in ("throw", "throw_before", "close", "close_before", "lost", "lost_before"):
    one = steps("/pauses")
    assert hasattr(one, "__await__") and one.cr_await is None
    if not ending.endswith("before"):
        tried(one.send, None)
        tried(one.send, "given")
        print(one.cr_await is not None)
    if ending.startswith("throw"):
        tried(one.throw, ValueError("thrown"))
    elif ending.startswith("close"):
        tried(one.close)
        tried(one.close)
    else:
        ring = [one]
        ring.append(ring)
        del one, ring
        gc.collect()
        continue
    tried(one.send, None)
asyncio.run(asyncio.wait_for(steps("/"), 60))
def shop(environ, start):
    start("200 OK", [("A", "b")])
    return [b"text", b"more"]
environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/w", "HTTP_X_A": "b", "HTTP_COOKIE": "a=b", "REMOTE_ADDR": "h"}
print(wsgi.RecordedWsgi(shop)(environ, lambda *_: None))
class File:
    def __init__(self, *_):
        self.closed = self.seek = 0
    def __iter__(self):
        return iter([b"of a file"])
class Text(str):
    pass
class Closing:
    def __init__(self, pieces, error=None):
        self.pieces, self.error, self.other = iter(pieces), error, "mine"
    def __iter__(self):
        time.monotonic_ns()
        return self
    def __next__(self):
        return next(self.pieces)
    def close(self):
        print("closed")
        if self.error:
            raise self.error
def raising():
    yield b"one"
    raise ValueError("in the middle")
def counter(environ, start):
    start("204 No Content", [("Set-Cookie", "id=0123456789")])
    start("500 No", [], None)
    return ()
def bad(environ, start):
    start("200 OK", [("A", "b")])
    raise OSError("no")
answers = {"list": [b"all"], "tuple": (b"", b"all", b"more"), "array": [bytearray(b"x")], "none": None}
answers.update(number=5, file=File(), one=Closing([b"one"]), several=Closing([b"", b"one", b"two", b""]), empty=Closing([]))
answers.update(unclosable=Closing([b"a"], KeyError("close")))
answers.update(generator=(piece for piece in [b"a", b"b"]), raises=raising())
starts = (("200 OK", [("A", "b"), ("Set-Cookie", "c=123456789")]), ("404", []),
    (Text("201 Text"), [(Text("A"), "b")]),
    ("2000 many", []), ("20", []), ("200 OK", (("A", "b"),)), ("200 OK", [["A", "b"]]), ("200 OK", [("A", 5)]))
def wsgi_steps(app, environ, start=lambda *_: "write"):
    try:
        answer = wsgi.RecordedWsgi(app)(environ, start)
        print(type(answer).__name__ in ("list", "tuple", "File"), getattr(answer, "other", None), hasattr(answer, "nothing"))
        for _ in range(2):
            print(*answer)
        print(answer.close())
    except Exception as error:
        print(type(error).__name__)
served = {"REQUEST_METHOD": "GET", "RAW_URI": "/w?token=secret123", "REMOTE_ADDR": "::1", "REMOTE_PORT": "80", "HTTP_X_A": "b"}
served.update({"CONTENT_LENGTH": "", "CONTENT_TYPE": "", "HTTP_COOKIE": "a=b; c=ddddddddd", "HTTP_EMPTY": "", "HTTP_": "no"})
served.update({"wsgi.file_wrapper": File, "os": "x"})
for name, answer in answers.items():
    def app(environ, start, answer=answer, name=name):
        print(name, environ is served, start("200 OK", [("A", name)]), hasattr(start, "__wrapped__"), callable(start))
        return answer
    wsgi_steps(app, served)
for status, headers in starts:
    wsgi_steps(lambda environ, start: [start(status, headers) and b"x"], served)
for app in (counter, bad, None, lambda *_: wsgi.RecordedWsgi(shop)(*_)):
    wsgi_steps(app, served)
for changes in ({"REMOTE_PORT": 81}, {"REMOTE_PORT": -1}, {"REMOTE_PORT": "8x"}, {"REMOTE_PORT": None}, {"REMOTE_ADDR": ""},
                {"RAW_URI": ""}, {"REQUEST_METHOD": Text("GET")}, {"HTTP_X_A": 5},
                {Text("HTTP_B"): "c"}, {"HTTP_" + "X" * 300: "long"}, {"HTTP_TRANSFER_ENCODING": "", "CONTENT_LENGTH": None},
                {"wsgi.input": io.BytesIO(b"body"), "CONTENT_LENGTH": "4"}):
    changed = {**served, **changes}
    changed.setdefault("REQUEST_URI", "/other")
    wsgi_steps(lambda environ, start: [start("200 OK", []) and environ.get("wsgi.input", io.BytesIO()).read()], changed)
for number in range(300):
    wsgi_steps(shop, {**served, "HTTP_N%d" % number: "n"})
wsgi_steps(shop, type("Own", (dict,), {})(served))
thread = threading.Thread(target=lambda: time.monotonic())
thread.start(); thread.join()
if os.fork() == 0:
    time.time(); os._exit(0)
os.wait()
print(time.time.__name__, time.time.__module__, type(time.time()).__name__)
"""
READINGS = """
import os, random, time, sys, uuid
from relive_recorder.recorder import recorder
assert (recorder.quick is not None) is QUICK
random.seed(5)
print([random.random(), random.randint(1, 9), random.getrandbits(80), random.gauss(0, 1), random.uniform(1, 2)])
print([len(os.urandom(n)) for n in (0, 1, 2, 3, 4097)])
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
    getattr(time, name)()
print(type(uuid.uuid4()) is uuid.UUID, type(uuid.uuid4).__name__, uuid.uuid4.__qualname__)
for wrong in (lambda: random.randint("a", 1), lambda: os.urandom(-1), lambda: time.time(1), lambda: uuid.uuid4(1)):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
print(os.environ.get("RELIVE_NOT_SET"), os.getenv("PYTHONPATH") == os.environ["PYTHONPATH"], "HOME" in os.environ)
for small in (open(sys.argv[0] + ".ini", "w"), open(sys.argv[0] + ".ini")):
    small.close()
"""


@each_python
def test_readings_are_recorded_the_same(run_recorded, tmp_path, python):
    told = []
    for with_it in (True, False):
        for ring in (tmp_path / "rings").glob("*"):
            ring.unlink()
        ran = run_recorded(READINGS.replace("QUICK", str(with_it)), python, quick=with_it)
        assert (ran.status, ran.err) == (0, "")
        # Up to 3.8 uuid asks another program what system this is.
        others = ("process-started", "subprocess")
        told.append((ran.out, [_reading_of(event) for event in ran.events if event.kind not in others]))
    assert told[0] == told[1]
    assert len(told[0][1]) == 20
    assert "True function uuid4" in told[0][0]


FRAMELESS = """
import _thread, atexit, os, pickle, random, sys, time, uuid
from relive_recorder.recorder import recorder
assert (recorder.quick is not None) is QUICK
for name in dir(random) + ["os.urandom", "time.time", "time.monotonic_ns", "uuid.uuid4"]:
    module, _, name = name.rpartition(".")
    module = sys.modules[module or "random"]
    found = getattr(module, name)
    if callable(found) and not isinstance(found, type) and (module is not random or name in random.__all__):
        again = pickle.loads(pickle.dumps(found))
        if again is not found and name not in ("getstate", "setstate", "seed", "binomialvariate"):
            print("another when it was pickled:", name)
given = {"urandom": (4,), "choice": ([1, 2],), "shuffle": ([],), "seed": ()}
environ = type(os.environ).__getitem__
threads = len(os.listdir("/proc/self/task"))
for function in (time.time, time.localtime, os.urandom, random.random, random.choice, random.shuffle, random.seed):
    _thread.start_new_thread(function, given.get(function.__name__, ()))
    atexit.register(function, *given.get(function.__name__, ()))
atexit.register(environ, os.environ, "HOME")
# A thread that begins when the interpreter has ended is a crash of CPython 3.11 (_PyThreadState_SetCurrent). The system
# counts those that have not begun, which _thread._count() does not.
for _ in range(6000):
    if len(os.listdir("/proc/self/task")) == threads:
        break
    time.sleep(0.01)
print("before the end", flush=True)
"""


@pytest.mark.parametrize("with_it", [True, False], ids=["c", "python"])
@each_python
def test_what_has_the_place_of_a_function_can_be_pickled_and_called_by_no_python_code(
    run_recorded, python, with_it
):
    """A thread or callback of C has no Python frame; processes of a pool are given functions by their names."""
    ran = run_recorded(FRAMELESS.replace("QUICK", str(with_it)), python, quick=with_it)
    assert (ran.status, ran.out, ran.err) == (0, "before the end\n", "")


@each_python
def test_no_module_is_named_by_a_descriptor_that_is_the_services(run_recorded, python):
    """GIVEN a program that reads the files of all modules, as Hypothesis does; THEN it reads no pipe that has that number now."""
    ran = run_recorded(
        """
import sys
module = sys.modules["relive_recorder._quick"]
for name in (module.__file__, module.__spec__.origin, module.__loader__.path):
    print(name.rpartition("/")[2], open(name, "rb").read(4))
""",
        python,
    )
    assert (ran.status, ran.out, ran.err) == (0, "_quick.abi3.so b'\\x7fELF'\n" * 3, "")


@pytest.mark.parametrize("with_it", [True, False], ids=["c", "python"])
@each_python
def test_who_writes_into_built_in_functions_finds_them(run_recorded, tmp_path, python, with_it):
    """GIVEN time-machine's part in C, which takes what it finds for built-in functions; THEN it finds no object of another form."""
    (tmp_path / "_time_machine.py").write_text("import time; first = type(time.time), type(time.gmtime)")
    told = run_recorded(
        f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import datetime, time
recorded = time.localtime, time.strftime, time.gmtime
import _time_machine
names = "time time_ns monotonic monotonic_ns perf_counter localtime gmtime strftime".split()
assert _time_machine.first == (type(len), type(len))
found = [getattr(time, name) for name in names] + [datetime.datetime.now, datetime.datetime.utcnow]
print([one for one in found if type(one) is not type(len)], time.time in recorded, recorded[0] is time.localtime)
""",
        python,
        quick=with_it,
    )
    assert (told.status, told.out, told.err) == (0, "[] False False\n", "")


# Where an interpreter of its own begins to record, too, it has a recorder of its own.
SECOND = """
import os, threading, time
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
def work():
    for _ in range(100):
        time.time(), os.urandom(2), open(os.devnull).close()
def works():
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
works()
other = interpreters.create()
interpreters.run_string(other, "import os, time; time.time(); os.urandom(2); open(os.devnull).close(); print('there', flush=True)")
works()
interpreters.destroy(other)
works()
from relive_recorder.recorder import recorder
print(recorder.quick is not None, flush=True)
os._exit(0)  # CPython 3.12.1 by itself crashes at the end of a program that had a second interpreter (gh-116510)
"""


@each_python
def test_another_interpreter_of_the_process_gets_none_of_it(run_recorded, python):
    ran = run_recorded(SECOND, python)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == ["there", "True"]


def _reading_of(event):
    value = event.fields.get("value")
    source = event.fields.get("source", "")
    if source.startswith("time.") or source in ("os.urandom", "uuid.uuid4"):  # not the same ones
        value = type(value), len(str(value)) if source == "os.urandom" else 0
    return (
        event.kind,
        source,
        event.fields["lane"],
        event.fields.get("name"),
        value,
        event.fields.get("asked"),
    )


# What differs between two runs of one program: times, and the key by which secrets are named.
_PASSING = {
    "ns",
    "body_ns",
    "own_seq",
    "thread",
    "argv",
    "quick",
    "why_not_quick",
    "value",
    "forked_from",
    "throw",
    "volatile",
    "fingerprint",
}


@each_python
def test_a_whole_service_is_recorded_the_same(run_recorded, tmp_path, python):
    told = []
    for with_it in (True, False):
        for ring in (tmp_path / "rings").glob("*"):
            ring.unlink()
        ran = run_recorded(SAME.replace("QUICK", str(with_it)), python, quick=with_it)
        assert (ran.status, ran.err.count("relive:")) == (0, 0), ran.err
        shown = [
            (
                event.kind,
                event.request,
                event.fields["lane"],
                _masked({name: value for name, value in event.fields.items() if name not in _PASSING}),
                event.data if event.kind != "failure" else b"",
            )
            for event in ran.events
        ]
        told.append((ran.out, shown))
    assert told[0][0] == told[1][0]
    assert told[0][1] == told[1][1]
    assert len(told[0][1]) > 60


def _masked(value: object) -> str:
    return re.sub("<secret:[0-9a-f]{8}>|0x[0-9a-f]+", "<>", json.dumps(value, sort_keys=True, default=str))


def test_it_says_whether_it_is_at_work_and_why_not(run_recorded, tmp_path):
    with_it = run_recorded("pass").events[0].fields
    assert (with_it["quick"], "why_not_quick" in with_it) == (True, False)
    for ring in (tmp_path / "rings").glob("*"):
        ring.unlink()
    without = run_recorded("pass", quick=False).events[0].fields
    assert (without["quick"], without["why_not_quick"]) == (False, "nobody asked for it")


@pytest.mark.parametrize("content", [b"\x7fELF no library", None])
def test_a_library_that_cannot_be_loaded_is_no_error(tmp_path, content):
    if content is not None:
        (tmp_path / "_quick.abi3.so").write_bytes(content)
    program = (
        f"from relive_recorder import quick; quick.__file__ = {str(tmp_path / 'quick.py')!r}\n"
        "print(quick.load(), quick.why_not)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(INPROCESS)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("None ImportError: " if content else "None FileNotFoundError: ")
    assert done.stderr == ""


REWRITTEN_CLOCK = """
import ctypes, time
from relive_recorder import _quick

class Method(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]

class Function(ctypes.Structure):
    _fields_ = [("references", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("method", ctypes.POINTER(Method))]

def method_of(function):
    return ctypes.cast(id(function), ctypes.POINTER(Function)).contents.method.contents

real = time.monotonic
wrapped = _quick.clock("monotonic", time, "", (b"x", real, lambda: -1.0, print, object(), {"queue": True}))
machinery = {"__name__": "queue", "read": wrapped}
assert eval("read()", machinery) < 1e9
method_of(real).code = method_of(time.time).code
assert real() > 1e9 and eval("read()", machinery) > 1e9
"""


def test_a_clock_that_is_rewritten_in_place_is_read_as_it_is_now() -> None:
    """As time-machine does, also for machinery that holds the wrapped clock by name."""
    done = subprocess.run(
        [sys.executable, "-c", REWRITTEN_CLOCK],
        env={"PYTHONPATH": str(INPROCESS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
