"""Values are looked at without running any code of theirs, within bounds, without secrets."""

from __future__ import annotations

import json

from relive.model.failure import Relation, Where, read_package
from relive.recording.events import EventKind

from .conftest import each_python

HOSTILE = r"""
import collections, datetime, decimal, enum, threading, time, uuid

def forbidden(*_args, **_named):
    open(MARK, "w").close()
    time.sleep(3600)

class Meta(type):
    __getattribute__ = forbidden
    __instancecheck__ = forbidden
    __eq__ = forbidden
    __hash__ = type.__hash__

class Hanging:
    for name in ("repr", "str", "len", "iter", "bool", "eq", "format", "getattr", "dir", "reduce", "class_getitem"):
        locals()["__%s__" % name] = forbidden
    __class__ = property(forbidden)
    __dict__ = property(forbidden)
    value = property(forbidden)
    def __init__(self):
        self.inner = [1, 2]

class Slotted:
    __slots__ = ("left", "password", "never")
    def __init__(self):
        self.left, self.password = 1, "geheim-0815"
    __repr__ = forbidden

class Sub(dict):
    items = keys = __iter__ = __len__ = __getitem__ = __repr__ = forbidden

class Text(str):
    __repr__ = __str__ = __len__ = __getitem__ = __hash__ = forbidden

class Strange(Exception):
    __str__ = __repr__ = forbidden
    args = property(forbidden)
    __cause__ = property(forbidden)
    __context__ = property(forbidden)
    __traceback__ = property(forbidden)

class Colour(enum.IntEnum):
    RED = 1

def fail():
    hanging = Hanging(); slotted = Slotted(); sub = Sub(a=1, api_token="tok-12345678"); text = Text("hello")
    deep = [[[[[[[[1]]]]]]]]; itself = []; itself.append(itself)
    many = list(range(100_000)); long = "x" * 1_000_000; number = 1 << 100_000; half = "\ud800"
    colour = Colour.RED; day = datetime.date(2026, 1, 2); amount = decimal.Decimal("1.50"); ordered = collections.OrderedDict(a=1)
    pair = collections.namedtuple("Pair", "x y")(1, 2); card = "4111 1111 1111 1111"; one = (1,); lock = threading.Lock()
    raise Strange("odd", 7)

try:
    try:
        fail()
    except Strange as other:
        raise ValueError("after") from other
except ValueError as error:
    # Not through sys.excepthook: Python's own printing calls __str__.
    import os
    from relive_recorder.failure.moment import seen
    seen(error, "main")
    os._exit(1)
"""


@each_python
def test_hostile_objects_are_shown_by_what_they_hold(run_recorded, tmp_path, python):
    mark = tmp_path / "ran"
    ran = run_recorded(f"MARK = {str(mark)!r}\n{HOSTILE}", python)
    assert "recorder switched off" not in ran.err
    assert not mark.exists(), "code of a value was run"
    (failure,) = ran.of(EventKind.FAILURE)
    package = read_package(failure.data)
    assert package.where is Where.MAIN
    assert [link.relation for link in package.chain] == [None, Relation.CAUSE]
    shown = package.chain[1].frames[-1].locals
    assert package.chain[1].frames[-1].function == "fail"
    assert shown["slotted"].startswith("<__main__.Slotted left=1, password=<secret:")
    assert shown["sub"].startswith("__main__.Sub({'a': 1, 'api_token': <secret:")
    assert shown["text"] == "__main__.Text('hello')"
    assert shown["deep"] == "[[[[<list>]]]]"
    assert shown["itself"] == "[<itself>]"
    assert shown["many"].endswith("… (+99976)]")
    assert len(shown["long"]) < 500
    assert shown["number"] == "<int of 100001 bits>"
    assert shown["colour"] == "__main__.Colour(1)"
    assert shown["amount"] == "decimal.Decimal('1.50')"
    assert shown["day"] == "datetime.date('2026-01-02')"
    assert shown["ordered"] == "collections.OrderedDict({'a': 1})"
    assert shown["one"] == "(1,)"
    assert "4111 1111" not in failure.data.decode()
    assert "geheim-0815" not in failure.data.decode()


WSGI = """
import io
from wsgiref.handlers import SimpleHandler
def app(environ, start_response):
    body = environ["wsgi.input"]
    return {}[body.read(2)]
SimpleHandler.os_environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "CONTENT_LENGTH": "4"}
SimpleHandler(io.BytesIO(b"data"), io.BytesIO(), io.StringIO(), {}).run(app)
"""


def test_what_the_recorder_stands_before_is_shown_without_it(run_recorded):
    failure = run_recorded(WSGI).of(EventKind.FAILURE)[0]  # wsgiref fails, too, then
    shown = read_package(failure.data).chain[0].frames[-1].locals
    assert shown["body"] == "<_io.BytesIO>"
    assert "'wsgi.input': <_io.BytesIO>" in shown["environ"] and "relive_recorder" not in shown["environ"]


def test_a_package_is_never_longer_than_its_readers_take(run_recorded):
    """A deep recursion with large locals: what is cut is said, the failing frame is still there."""
    ran = run_recorded(
        "def down(n):\n"
        "    data = {str(i): 'y' * 300 for i in range(24)}; more = [data] * 24; again = [more] * 24\n"
        "    return down(n - 1) if n else {}[n]\n"
        "down(300)\n"
    )
    (failure,) = ran.of(EventKind.FAILURE)
    assert len(failure.data) <= 512 << 10
    package = read_package(failure.data)
    assert any("frames in the middle" in one for one in package.cut)
    frame = package.failing_frame()
    assert frame is not None
    assert (frame.function, frame.line) == ("down", 3)


def test_the_revision_is_read_from_the_files_of_git(run_recorded, tmp_path):
    (tmp_path / ".git" / "refs").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "packed-refs").write_text(f"# pack-refs\n{'ab' * 20} refs/heads/main\n")
    ran = run_recorded("{}[1]")
    revision = read_package(ran.of(EventKind.FAILURE)[0].data).revision
    assert revision is not None
    assert (revision.commit, revision.dirty, revision.root) == ("ab" * 20, None, str(tmp_path))


PLACES = """
import asyncio, logging, sys, threading
def bad(where):
    raise KeyError(where)
thread = threading.Thread(target=bad, args=("thread",)); thread.start(); thread.join()
async def tasks():
    task = asyncio.ensure_future(later())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
async def later():
    bad("task")
asyncio.run(tasks())
import gc; gc.collect()
try:
    bad("log")
except KeyError:
    logging.exception("seen")
    logging.warning("not a failure", exc_info=True)
bad("main")
"""


@each_python
def test_each_place_from_which_an_exception_escapes(run_recorded, python):
    ran = run_recorded(PLACES, python)
    failures = ran.of(EventKind.FAILURE)
    assert [(one.fields["where"], one.fields["text"]) for one in failures] == [
        (where, f"'{where}'") for where in ("thread", "task", "log", "main")
    ]
    assert "recorder switched off" not in ran.err
    assert ran.status == 1


def test_an_exception_is_told_once_however_long_it_stood_still(run_recorded):
    """GIVEN a commit at it that takes longer than marks count, WHEN places further out see it, THEN it is the same failure.

    And another one on the same way through the service's code is, too, whichever library's frames lie around that.
    """
    ran = run_recorded(
        "import contextlib\n"
        "from relive_recorder.failure import moment, waiting\n"
        "clock = [1_000_000_000]\n"
        "moment._mono = lambda: clock[0]\n"
        "waiting.decide = lambda _fingerprint: 'throw-1-1'\n"
        "def stand_still(_throw, _error): clock[0] += 3_000_000_000\n"
        "waiting.stand_still = stand_still\n"
        "def fail(): raise KeyError('USD')\n"
        "class Library(contextlib.ContextDecorator):\n"
        "    def __enter__(self): pass\n"
        "    def __exit__(self, *_): pass\n"
        "def inner(call):\n"
        "    try: call()\n"
        "    except KeyError as error:\n"
        "        moment.seen(error, 'handler'); raise\n"
        "def serve(call):\n"
        "    try: inner(call)\n"
        "    except KeyError as error: moment.seen(error, 'log')\n"
        "for call in (fail, Library()(fail)): serve(call)\n"
    )
    assert "recorder switched off" not in ran.err
    failures = ran.of(EventKind.FAILURE)
    assert [one.fields["where"] for one in failures] == ["handler", "handler"]
    assert len({one.fields["fingerprint"] for one in failures}) == 1


def test_of_many_failures_each_is_told_and_few_have_a_package(run_recorded):
    ran = run_recorded(
        "import threading\n"
        "def bad(n): raise KeyError(n)\n"
        "for n in range(100):\n"
        "    t = threading.Thread(target=bad, args=(n,)); t.start(); t.join()\n"
    )
    failures = ran.of(EventKind.FAILURE)
    assert [one.fields["text"] for one in failures] == [str(n) for n in range(100)]
    assert 0 < sum(bool(one.data) for one in failures) <= 20
    assert len({one.fields["fingerprint"] for one in failures}) == 1


def test_nobody_waits_without_an_agent(run_recorded, tmp_path):
    ran = run_recorded(
        "import time; began = time.monotonic()\ntry:\n    {}[1]\nfinally:\n    pass", wait_ms=60_000
    )
    (failure,) = ran.of(EventKind.FAILURE)
    assert "throw" not in failure.fields
    assert not list((tmp_path / "rings").glob("throw-*"))


def test_options_are_no_part_of_the_environment(run_recorded):
    ran = run_recorded("{}[1]")
    package = json.loads(ran.of(EventKind.FAILURE)[0].data)
    assert "RELIVE_RECORDER" not in package["environment"]
    assert "PYTHONPATH" in package["environment"]
