"""Clocks, chance, environment, files, subprocesses, log records, in every Python: recorded once, and played where they can be."""

from __future__ import annotations

import pytest

from relive.recording.events import EventKind

from .conftest import each_python

READINGS = """
import datetime, inspect, json, pickle, random, secrets, time, uuid
from relive_recorder import calls
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.ring import MODE
tape = []
recorder.quick = None  # whose events do not come by here; test_quick_*.py hold them against these
emit_json = recorder.emit_json
def noted(kind, fields, data=b"", request=None):
    tape.append((kind, json.loads(fields)))
    return emit_json(kind, fields, data, request)
recorder.emit_json = noted
recorder.emit = lambda kind, fields, data=b"", request=None: noted(kind, json.dumps(fields), data, request)
def reading(kind, source):
    for event in tape:
        if event[0] == kind and event[1]["source"] == source:
            tape.remove(event)
            return event[1]["value"], True
calls.answer_with(lambda channel, asked: None, reading)
class Mine(datetime.datetime):
    pass
zone = datetime.timezone(datetime.timedelta(hours=2))
def once():
    items = list("abcdef")
    random.shuffle(items)
    return [
        time.time(), time.monotonic_ns(), datetime.datetime.now(), datetime.datetime.now(zone), datetime.datetime.now(tz=zone),
        datetime.datetime.utcnow(), datetime.date.today(), datetime.datetime.today(), Mine.now(), random.random(),
        random.randint(1, 10**9), random.choice("abcdefgh"), random.choices([1, 2, 3], k=5), random.sample(range(100), 4),
        random.uniform(1, 2), random.getrandbits(64), items, uuid.uuid4(), uuid.uuid1(), secrets.token_hex(8),
        random.Random().random(), time.localtime(), time.gmtime(None), time.ctime(), time.asctime(), time.strftime("%H:%M:%S"),
    ]
first = once()
before = list(tape)
recorder._ring.words[MODE] = REPLAY
random.seed(99)
second = once()
assert second == first, [pair for pair in zip(first, second) if pair[0] != pair[1]]
assert [type(one) for one in second] == [type(one) for one in first]
played = [(kind, {**fields, "played": True}) for kind, fields in before]
assert tape == played, (tape, before)  # each reading took one and left one of its own, which says so
assert len(before) == 26, [event[1]["source"] for event in before]
third = once() if tape.clear() is None else None
assert not set(map(str, third[:3])) & set(map(str, first[:3]))  # nothing is left: the real clock goes on
assert type(first[2]) is datetime.datetime and type(first[8]) is Mine and datetime.datetime.__module__ == "datetime"
assert pickle.loads(pickle.dumps(first[2])) == first[2]
assert list(inspect.signature(datetime.datetime.now).parameters) == ["tz"]
for wrong in (lambda: datetime.datetime.now(5), lambda: random.choice([]), lambda: random.randint("a", 1)):
    try:
        wrong()
    except (TypeError, IndexError, ValueError):
        continue
    raise AssertionError("no error")
for wrong in (lambda: time.strftime("%H", None), lambda: time.asctime(None), lambda: time.strftime(), lambda: time.localtime("1")):
    try:
        wrong()
    except TypeError:
        continue
    raise AssertionError("no error")
class Formatter:
    converter = time.gmtime
assert Formatter().converter(0) == time.gmtime(0) and pickle.loads(pickle.dumps(time.gmtime)) is time.gmtime
class OwnRandom(random.Random):
    pass
recorder._ring.words[MODE] = RECORD
assert OwnRandom().random() != OwnRandom().random() and OwnRandom(7).random() == random.Random(7).random()
random.seed()
random.seed(5)
drawn = [random.random(), random.choice("abc"), random.sample([1, 2, 3], 2), random.choices("ab", k=3)]
own = random.Random(5)
assert drawn == [own.random(), own.choice("abc"), own.sample([1, 2, 3], 2), own.choices("ab", k=3)]
print("as ever")
"""

THINGS = """
import asyncio, logging, os, pathlib, subprocess, sys
place = pathlib.Path(sys.argv[0]).parent
os.environ["MODE_OF_WORK"] = "fast"
for _ in range(2):
    os.environ.get("MODE_OF_WORK"), os.getenv("NOT_SET_AT_ALL"), os.environ["MODE_OF_WORK"]
for _ in range(2):
    with open(str(place / "small.ini")) as file:
        file.read()
    (place / "small.ini").read_text()
open(str(place / "large.bin"), "rb").close()
open(str(place / "written.txt"), "w").close()
try:
    open(str(place / "missing.ini"))
except FileNotFoundError:
    pass
subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(3)"], env={})
subprocess.Popen("kill -9 $$", shell=True, env={}).wait()
try:
    subprocess.run(["/no/such/program"])
except FileNotFoundError:
    pass
async def wait():
    return await (await asyncio.create_subprocess_exec("false", env={})).wait()
assert asyncio.run(wait()) == 1
class Own:
    def __str__(self):
        raise AssertionError("code of the service ran")
logger = logging.getLogger("orders")
logger.setLevel(logging.INFO)
logger.addHandler(logging.NullHandler())
logger.propagate = False
logger.debug("not accepted")
logger.info("order %d of %s", 7, Own())
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("failed")
"""


@each_python
def test_readings_come_back(run_recorded, python):
    ran = run_recorded(READINGS, python)
    assert (ran.status, ran.out) == (0, "as ever\n"), ran.err


def test_defaults_of_columns_are_readings_of_the_service(run_recorded):
    """SQLAlchemy calls them, whose own readings are nobody's business."""
    ran = run_recorded(
        "import datetime, time\n"
        "from sqlalchemy import Column, DateTime, Float, Integer, MetaData, Table, create_engine\n"
        "table = Table('orders', MetaData(), Column('id', Integer, primary_key=True),\n"
        "    Column('made', DateTime, default=datetime.datetime.now), Column('at', Float, default=time.time))\n"
        "with create_engine('sqlite://').begin() as connection:\n"
        "    table.create(connection)\n"
        "    connection.execute(table.insert())\n"
        "    print(*connection.execute(table.select()).one()[1:], sep='|')\n"
    )
    assert (ran.status, ran.err) == (0, "")
    made, at = ran.out.strip().split("|")
    read = {event.fields["source"]: event.fields["value"] for event in ran.of(EventKind.CLOCK)}
    assert read == {"datetime.now": {"$": ["datetime", made.replace(" ", "T"), 0]}, "time.time": float(at)}
    assert len(ran.of(EventKind.CLOCK)) == 2


@each_python
def test_things_are_told_once(run_recorded, python, tmp_path):
    (tmp_path / "small.ini").write_text("[a]\nb = 1\n")
    (tmp_path / "large.bin").write_bytes(bytes(300 << 10))
    ran = run_recorded(THINGS, python)
    assert (ran.status, ran.err) == (0, "")
    reads = {event.fields["name"]: event.fields.get("value") for event in ran.of(EventKind.ENVIRONMENT_READ)}
    assert len(reads) == len(ran.of(EventKind.ENVIRONMENT_READ))
    assert reads == {"MODE_OF_WORK": "fast", "NOT_SET_AT_ALL": None}
    files = ran.of(EventKind.FILE_READ)
    assert [event.fields["asked"]["path"] for event in files] == [
        str(tmp_path / "small.ini"),
        str(tmp_path / "missing.ini"),
    ]
    assert files[0].data == b"[a]\nb = 1\n"
    assert files[1].fields["error"]["errno"] == 2
    ended = [
        event.fields for event in ran.of(EventKind.SUBPROCESS) if event.fields["asked"]["argv"][0] != "uname"
    ]
    assert [one.get("answer", {}).get("status") for one in ended] == [3, -9, None, 1]
    assert ended[1]["asked"] == {"argv": ["kill -9 $$"], "shell": True}
    assert ended[2]["error"]["type"] == "builtins.FileNotFoundError"
    logs = [event.fields for event in ran.of(EventKind.LOG_RECORD) if event.fields["logger"] == "orders"]
    assert [(one["level"], one["text"]) for one in logs] == [
        ("INFO", "order 7 of <__main__.Own>"),
        ("ERROR", "failed"),
    ]
    assert logs[1]["exception"] == "builtins.ZeroDivisionError"
    assert logs[0]["where"].startswith(f"{tmp_path / 'program.py'}:")


@pytest.mark.parametrize("quick", [False, True])
def test_who_logged_is_found_by_going_up_from_logging(run_recorded, tmp_path, quick):
    """As the handlers do that hand records over to loguru; what a record passes of the recorder's seems to be logging's."""
    ran = run_recorded(
        "import logging, sys\n"
        "class Handler(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        frame = sys._getframe(1)\n"
        "        while frame.f_code.co_filename == logging.__file__:\n"
        "            frame = frame.f_back\n"
        "        print(frame.f_code.co_filename, frame.f_code.co_name)\n"
        "logging.getLogger().addHandler(Handler())\n"
        "def pay():\n"
        "    logging.warning('late')\n"
        "    logging.getLogger('shop').error('late', exc_info=True)\n"
        "pay()\n",
        quick=quick,
    )
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == [f"{tmp_path / 'program.py'} pay"] * 2


def test_what_packages_read_of_the_environment_is_not_told(run_recorded, tmp_path):
    package = tmp_path / "lib" / "site-packages"
    package.mkdir(parents=True)
    (package / "installed.py").write_text(
        "import os\ndef read():\n    return os.environ.get('OF_A_PACKAGE'), os.getenv('OF_A_PACKAGE')\n"
    )
    ran = run_recorded(
        f"import os, sys\nsys.path.insert(0, {str(package)!r})\nimport installed\n"
        "installed.read(), installed.read(), os.environ.get('OF_THE_SERVICE'), installed.read()\n"
        "'BY_IN' in os.environ, os.getenv('OF_THE_SERVICE'), os.getenv('LAST'), installed.read()"
    )
    assert (ran.status, ran.err) == (0, "")
    names = [event.fields["name"] for event in ran.of(EventKind.ENVIRONMENT_READ)]
    assert names == ["OF_THE_SERVICE", "BY_IN", "LAST"]


def test_kinds_can_be_switched_off(run_recorded, tmp_path):
    (tmp_path / "small.ini").write_text("x")
    off = ["clock", "environment-read", "file-read", "log-record", "random", "subprocess"]
    ran = run_recorded(THINGS, off=off)
    assert (ran.status, ran.err) == (1, ran.err)  # large.bin is not there
    ran = run_recorded("import time, os, random; time.time(), os.getenv('A'), random.random()", off=off)
    assert ran.status == 0
    assert {event.kind for event in ran.events[-1:]} == {EventKind.PROCESS_STARTED}


LOGGING = """
import logging, sys
logger = logging.getLogger("orders")

class Failing(logging.Handler):
    def handle(self, record):
        if record.msg == "fail":
            raise KeyError("of the handler")
        return "handled"

logger.addHandler(logging.StreamHandler(sys.stdout))
logger.addHandler(Failing())
logger.warning("order %d of %s", 7, "somebody")
logger.removeHandler(logger.handlers[0])
logger.warning("order %d of %s", 8, "password=hunter2-hunter2")
logger.error("%s", object())
logger.error("100%", 1)
logger.info("not accepted")
try:
    logger.warning("fail")
except KeyError as error:
    print(error)
record = logger.makeRecord("orders", logging.INFO, "/a.py", 1, "by hand", None, None)
print(logger.callHandlers(record=record), logging.Logger.callHandlers(logger, record))
try:
    logger.callHandlers()
except TypeError:
    print("TypeError")

class Borrowing:
    handlers, propagate, parent, callHandlers = (Failing(),), False, None, logging.Logger.callHandlers

borrowing = Borrowing()
print(borrowing.callHandlers(record), borrowing.callHandlers(record=record))
print(logging.Logger.callHandlers(borrowing, record))
print(logging.Logger.callHandlers.__name__, logging.Logger.callHandlers.__qualname__)
"""


def test_log_records_are_told_the_same_by_the_part_in_c(run_recorded, tmp_path):
    told = []
    for quick in (True, False):
        for ring in (tmp_path / "rings").glob("*"):
            ring.unlink()
        ran = run_recorded(LOGGING, quick=quick)
        assert (ran.status, ran.err) == (0, "")
        assert ran.out == (
            "order 7 of somebody\n'of the handler'\nNone None\nTypeError\nNone None\nNone\n"
            "callHandlers Logger.callHandlers\n"
        )
        # Each process has placeholders of its own.
        texts = [event.fields["text"].split("<secret:")[0] for event in ran.of(EventKind.LOG_RECORD)]
        told.append(texts)
    begun = ["order 7 of somebody", "order 8 of password=", "<builtins.object>", "100%", *["by hand"] * 5]
    assert told == [begun, begun]


CLOCKS_OF_MANY = """
import time
asked = compile("time.monotonic()", "asked", "exec")
modules = [{"__name__": f"{'asyncio' if n % 2 else 'shop'}.part{n}", "time": time} for n in range(100)]
for module in modules + modules[::-1]:
    exec(asked, module)
"""


@pytest.mark.parametrize("quick", [True, False])
def test_clocks_are_told_of_every_module_but_machinery(run_recorded, quick):
    """GIVEN more modules than the part in C keeps the verdicts of, every second of them machinery
    WHEN each reads the clock, and once more
    THEN the readings of the others are recorded, all of them.
    """
    ran = run_recorded(CLOCKS_OF_MANY, quick=quick)
    assert (ran.status, ran.err) == (0, "")
    assert len(ran.of(EventKind.CLOCK)) == 100
