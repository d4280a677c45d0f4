"""Programs that are asked without a branch: in each CPython of this host, waiting, computing, and with questions that harm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inprocess.conftest import each_python
from relive.errors import UsageError
from relive.inspection.python.asking import InterpreterEnded, ask, is_python
from relive.inspection.python.calling import CallDied, CallLate, StoppedThread
from relive.kernel import procfs
from support.waiting import eventually

PAUSE = "34 "  # in /proc/PID/syscall
LIMIT = 60.0  # [s] the machine may be busy
WAITS = """
import threading
class User:
    def __init__(self, role): self.role = role
cache = {'user:47': User('admin')}
def serve(number):
    double = number * 2
    print('ready', flush=True)
    input()
serve(21)
"""
COMPUTES = """
print('ready', flush=True)
count = 0
while True:
    count += 1
"""
HOLDS = """
import collections, functools
class Thing:
    __slots__ = ('name',)
class Registry:
    def __init__(self): self.things, self.seen, self.lines = [], {1, 2}, collections.deque('abc')
class Held: pass
registry = Registry()
registry.blob = bytes(5 << 20)
for number in range(40):
    registry.things.append(Thing())
    registry.things[-1].name = 'thing %d' % number
@functools.lru_cache(maxsize=None)
def price(number): return [number]
for number in range(7):
    price(number)
def serve():
    mine = {'of a frame': Held()}
    cycle = []
    cycle.append(cycle)
    print('ready', flush=True)
    input()
serve()
"""
TASKS = """
import asyncio, threading, time
first, second, free = threading.Lock(), threading.RLock(), threading.Lock()
def has(lock, other):
    with lock:
        with other:
            pass
def passes():
    with free:
        time.sleep(1000)
async def inner(depth):
    await asyncio.sleep(1000)
async def outer(): await inner(3)
async def takes(lock):
    async with lock:
        await outer()
async def main():
    second.acquire()
    first.acquire()
    made = [threading.Thread(target=has, args=(second, first), name='asks', daemon=True),
            threading.Thread(target=passes, name='passes', daemon=True)]
    for one in made: one.start()
    lock = asyncio.Lock()
    loop = asyncio.get_running_loop()
    task = loop.create_task(outer(), name='outer')
    both = [loop.create_task(takes(lock), name=name) for name in ('left', 'right')]
    async def gathers(): await asyncio.gather(*both)
    more = loop.create_task(gathers(), name='gathers')
    await asyncio.sleep(0.01)
    print('ready', flush=True)
    await task
asyncio.run(main())
"""


@contextlib.contextmanager
def running(program: str, python: str = sys.executable) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [python, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def switches(pid: int) -> int:
    """How often its main thread has gone to sleep."""
    return int(procfs.status_field(pid, "voluntary_ctxt_switches") or 0)


def evaluated(
    process: subprocess.Popen[str], expression: str, *, depth: int = 0, limit: float = LIMIT
) -> dict:
    question = {"kind": "evaluate", "expression": expression, "module": None, "depth": depth, "most": 100}
    return ask(process.pid, question, limit)


@each_python
def test_every_cpython_evaluates_and_goes_on_afterwards(python):
    with running(WAITS, python) as process:
        found = evaluated(process, "cache", depth=3)
        assert ["['user:47'].role", "'admin'"] in found["parts"]
        assert found["length"] == 1 and found["type"] == "dict"
        stacks = ask(process.pid, {"kind": "stacks", "most": 100}, LIMIT)
        (thread,) = stacks["threads"]
        assert thread["frames"][0]["function"] == "serve"
        assert thread["frames"][0]["locals"] == {"number": "21", "double": "42"}
        _, said = process.communicate("\n", timeout=LIMIT)
        assert (process.returncode, said) == (0, "")


@each_python
def test_a_program_that_never_waits_is_asked_at_a_safe_place(python):
    with running(COMPUTES, python) as process:
        assert int(evaluated(process, "count")["text"]) > 0
        frames = ask(process.pid, {"kind": "stacks", "most": 100}, LIMIT)["threads"][0]["frames"]
        assert [frame["function"] for frame in frames] == ["<module>"]


@each_python
def test_what_a_process_holds_is_counted_and_who_holds_it_found(python, tmp_path):
    program = tmp_path / "holds.py"
    program.write_text(HOLDS)
    with running(f"__file__ = {str(program)!r}\n{HOLDS}", python) as process:
        found = ask(process.pid, {"kind": "census", "most": 1000}, LIMIT)
        assert found["types"]["Thing"][0] == 40 and found["types"]["Thing"][1] > 40 * 16
        assert found["types"]["str"][0] > 40 and found["types"]["Held"][0] == 1
        sizes = {path: (kind, count) for path, (kind, count, _) in found["collections"].items()}
        assert sizes["registry.things"] == ("list", 40)
        assert sizes["registry.seen"] == ("set", 2)
        assert sizes["registry.lines"] == ("collections.deque", 3)
        assert sizes["price"][1] == 7
        question = {"kind": "entries", "paths": ["registry.seen"], "collections": 1000, "most": 10}
        assert sorted(ask(process.pid, question, LIMIT)["registry.seen"]) == ["1", "2"]
        wanted = {"kind": "holders", "types": ["Thing", "Held", "Registry"]}
        held = ask(process.pid, {**wanted, "known": {}}, LIMIT)
        assert held["Thing"].startswith("registry.things[")
        assert held["Registry"] == "registry"
        assert held["Held"].startswith("serve() ") and held["Held"].endswith(": mine['of a frame']")
        at = ask(process.pid, {"kind": "addresses", "types": ["Thing", "Held"], "most": 39}, LIMIT)
        assert at["Thing"] is None
        held = ask(process.pid, {**wanted, "known": {"Held": at["Held"]}}, LIMIT)
        assert "Held" not in held and held["Thing"].startswith("registry.things[")
        largest = ask(process.pid, {"kind": "largest", "most": 3}, LIMIT)
        assert largest["types"]["Thing"] == found["types"]["Thing"]
        first = largest["objects"][0]
        assert (first["type"], first["held_by"]) == ("bytes", "registry.blob") and first["size"] > 4 << 20
        assert len(largest["objects"]) == 3
        # What counts them is not counted: its set of those that were met grows to some thousand.
        assert not any(one["type"] == "set" and one["count"] > 1000 for one in largest["objects"])
        assert [one["size"] for one in largest["objects"]] == sorted(
            (one["size"] for one in largest["objects"]), reverse=True
        )


@each_python
def test_tasks_are_told_with_what_they_wait_for_and_who_has_a_lock(python, tmp_path):
    file = tmp_path / "tasks.py"
    file.write_text(TASKS)
    with running(f"exec(compile(open({str(file)!r}).read(), {str(file)!r}, 'exec'))", python) as process:
        told = ask(process.pid, {"kind": "stacks", "most": 100}, LIMIT)
    tasks = {one["name"]: one for one in told["tasks"]}
    assert [text.split()[0] for text in tasks["outer"]["coroutines"]] == ["outer", "inner", "sleep"]
    assert tasks["outer"]["frames"][1]["locals"] == {"depth": "3"} and tasks["outer"]["awaits"] == []
    assert tasks["gathers"]["awaits"] == ["left", "right"]
    (main,) = [one for one in told["tasks"] if one["name"].startswith("Task-")]
    assert main["waits_for"] == "outer" and main["awaits"] == ["outer"]
    waits = {one["who"]: (one["expression"], one["holders"]) for one in told["waits"]}
    assert waits == {"thread asks": ("lock", ["thread MainThread"]), "task right": ("lock", ["task left"])}


def test_who_refers_to_a_value_is_told_and_names_of_the_services_modules_suffice(tmp_path):
    (tmp_path / "shop.py").write_text("basket = {'tea': [1, 2]}\nseen = [basket['tea']]\n")
    (tmp_path / "vendored.py").write_text("seen = 1\n")
    (tmp_path / "vendored-1.dist-info").mkdir()
    (tmp_path / "vendored-1.dist-info" / "RECORD").write_text("vendored.py,sha256=x,9\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import shop, vendored\n"
    with running(program + "here = shop.seen\nprint('ready', flush=True); input()") as process:
        question = {"kind": "evaluate", "module": None, "depth": 0, "most": 1, "referrers": 5}
        found = ask(process.pid, {**question, "expression": "basket['tea']"}, LIMIT)
        assert (found["text"], sorted(found["referrers"])) == ("[1, 2]", ["here[0]", "shop.basket['tea']"])
        values = ask(process.pid, {"kind": "dump", "depth": 2, "most": 100}, LIMIT)["values"]
        assert values["here"] == "list of 1" and values["shop.seen"] == "the same as here"
        assert not any("vendored" in path for path in values)


def test_what_an_expression_raises_is_told():
    with running(WAITS) as process:
        raised = evaluated(process, "cache['nobody']")["raised"]
        assert (raised["type"], raised["message"]) == ("KeyError", "'nobody'")
        assert evaluated(process, "cache = 1")["raised"]["type"] == "SyntaxError"
        assert evaluated(process, "exit(3)")["raised"]["type"] == "SystemExit"
        assert evaluated(process, "'\\udc80'")["text"] == "'\\udc80'"


def test_an_expression_that_does_not_end_ends_with_its_process():
    with running(WAITS) as process:
        with pytest.raises(CallLate):
            evaluated(process, "[1 for _ in iter(int, 1)]", limit=1)
        assert not procfs.exists(process.pid)


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("__import__('os')._exit(3)", 0),
        ("__import__('os').kill(__import__('os').getpid(), 9)", 9),
        ("__import__('ctypes').string_at(0)", 11),
    ],
)
def test_an_expression_that_kills_its_process_is_told(expression, number):
    with running(WAITS) as process:
        with pytest.raises(CallDied) as died:
            evaluated(process, expression)
        assert died.value.signal == number


EXITS = """
import ctypes
c = ctypes.CDLL(None)
c.__cxa_atexit(ctypes.cast(c.pause, ctypes.c_void_p), None, None)
print('ready', flush=True)
"""


@each_python
def test_an_exiting_process_whose_interpreter_has_ended_is_not_killed_by_a_question(python):
    with running(EXITS, python) as process:
        calls = Path(f"/proc/{process.pid}/syscall")
        while not calls.read_text().startswith("34 "):  # pause
            assert process.poll() is None
        with pytest.raises(InterpreterEnded):
            evaluated(process, "1 +")
        assert process.poll() is None


def test_what_is_no_python_is_refused():
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(["sleep", "1000"])
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert not is_python(process.pid)
        with pytest.raises(UsageError, match="can be asked no Python"):
            ask(process.pid, {}, LIMIT)


def test_a_thread_that_waits_is_asked_while_another_computes():
    program = WAITS.replace(
        "serve(21)",
        "threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\nserve(21)",
    )
    with running(program) as process:
        assert evaluated(process, "len(cache)")["text"] == "1"
        assert len(procfs.threads_of(process.pid)) == 2


def test_a_stopped_process_is_continued_though_a_thread_is_not_stopped_again_yet(monkeypatch):
    """Who is looked at for the interpreter's lock runs a moment before it is stopped again; its state is taken once, before that.

    The main thread waits for the lock that the other has within a function of C, and who gives it away waits until it is taken.
    """
    program = """
import ctypes, threading
def hold():
    print("ready", flush=True)
    ctypes.PyDLL(None).pause()
threading.Thread(target=hold, daemon=True).start()
while True:
    pass
"""
    with running(program) as process:
        (holder,) = set(procfs.threads_of(process.pid)) - {process.pid}
        call = Path(f"/proc/{process.pid}/task/{holder}/syscall")
        assert eventually(lambda: call.read_text().startswith(PAUSE), "its function of C")
        woken = switches(process.pid)
        assert eventually(lambda: switches(process.pid) > woken + 2, "who asks again and again for the lock")
        process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: procfs.is_stopped(process.pid), "its stop")
        told = iter([True])
        monkeypatch.setattr(procfs, "is_stopped", lambda _: next(told, False))
        assert evaluated(process, "[0 for _ in range(100_000)][0]")["text"] == "0"


def test_nothing_of_it_stays_open_here():
    before = len(os.listdir("/proc/self/fd"))
    with running(WAITS) as process:
        during = len(os.listdir("/proc/self/fd"))
        evaluated(process, "1")
        assert len(os.listdir("/proc/self/fd")) == during
    assert during > before


def test_a_thread_that_is_not_where_it_shall_be_in_time_is_not_left_traced():
    """Its process would never end for who waits for its PID namespace."""
    with running(WAITS) as process:
        late = time.monotonic() - 1
        with pytest.raises(CallLate), StoppedThread(process.pid, process.pid, late) as thread:
            thread.await_signal(signal.SIGTRAP)
        assert procfs.status_field(process.pid, "TracerPid") in (None, "0")
