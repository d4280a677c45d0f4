"""The agent's side, against a real tracer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from relive.errors import CapsuleError, ProcessGone
from relive.kernel import procfs
from relive.signals.client import TracerClient
from relive.signals.messages import Exited, Fatal

from .conftest import LIMIT, Program

Start = Callable[..., Program]

pytestmark = pytest.mark.real

_CRASHES_WITH_THREADS = """
import os, signal, sys, threading
for _ in range(100):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGSEGV)
signal.pause()
"""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LIMIT))


def test_a_crash_from_its_event_to_its_end(start: Start) -> None:
    program = start("fork_raise")

    async def main() -> None:
        async with await TracerClient.start() as tracer:
            attached = await tracer.attach(program.pid)
            assert (attached.tasks, attached.held, attached.skipped) == (1, False, ())
            program.say()
            events = tracer.events()
            fatal = await anext(events)
            assert isinstance(fatal, Fatal)
            assert (fatal.name, fatal.stopped) == ("SIGABRT", True)
            released = await tracer.release()
            assert (released.died, released.tasks) == (True, 1)
            program.line()
            os.kill(program.pid, signal.SIGTERM)
            ended = await anext(events)
            assert isinstance(ended, Exited)
            assert (ended.pid, ended.signal) == (program.pid, signal.SIGTERM)

    run(main())
    assert program.end() == -signal.SIGTERM


def test_stepping_aside_leaves_the_place_to_another_tracer(start: Start) -> None:
    program = start("segv_main")

    async def main() -> None:
        async with await TracerClient.start() as tracer, await TracerClient.start() as another:
            await tracer.attach(program.pid)
            async with tracer.stepped_aside() as held:
                assert not held
                await another.attach(program.pid)
                await another.detach()
            program.say()
            assert isinstance(await anext(tracer.events()), Fatal)
            async with tracer.stepped_aside() as held:
                assert held
            assert (await tracer.release()).died

    run(main())


def test_whoever_is_told_to_step_aside_amid_a_crash_does_not_trace_any_more(start: Start) -> None:
    """A commit begins then, and was refused for the tracer that was just about to let go."""
    program = start([sys.executable, "-c", _CRASHES_WITH_THREADS])

    async def main() -> None:
        async with await TracerClient.start() as tracer:
            await tracer.attach(program.pid)
            os.kill(tracer.pid, signal.SIGSTOP)  # for as long as the crash and the command need to reach it
            program.say()
            while procfs.read_stat(program.pid).state != "t":  # type: ignore[union-attr]
                await asyncio.sleep(0.001)
            waiting = asyncio.create_task(tracer.detach())
            await asyncio.sleep(0)  # lets it send
            os.kill(tracer.pid, signal.SIGCONT)
            held = await waiting
            tracers = {procfs.status_field(thread, "TracerPid") for thread in procfs.threads_of(program.pid)}
            assert held and tracers == {"0"}
            assert isinstance(await anext(tracer.events()), Fatal)
            assert (await tracer.release()).died

    run(main())


def test_a_tree_that_ends_while_the_tracer_is_aside(start: Start) -> None:
    program = start("idle")

    async def main() -> None:
        async with await TracerClient.start() as tracer:
            await tracer.attach(program.pid)
            async with tracer.stepped_aside():
                program.close()
            with pytest.raises(ProcessGone):
                await tracer.attach(program.pid)

    run(main())


def test_errors_of_the_tracer_are_raised_here() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()

    async def main() -> None:
        async with await TracerClient.start() as tracer:
            with pytest.raises(ProcessGone):
                await tracer.attach(gone.pid)

    run(main())


def test_a_tracer_that_was_killed_is_noticed(start: Start) -> None:
    """By who waits for a reply, by who waits for events, and by who comes later; the service runs on."""
    program = start("idle")

    async def main() -> None:
        tracer = await TracerClient.start()
        await tracer.attach(program.pid)
        os.kill(tracer.pid, signal.SIGSTOP)
        waiting = asyncio.create_task(tracer.detach())
        await asyncio.sleep(0)  # lets it send
        os.kill(tracer.pid, signal.SIGKILL)
        assert [event async for event in tracer.events()] == []
        with pytest.raises(CapsuleError):
            await waiting
        with pytest.raises(CapsuleError):
            await tracer.release()
        await tracer.close()

    run(main())
    assert program.ask() == "alive"


def test_closing_lets_a_held_process_die(start: Start) -> None:
    program = start("abort_main")

    async def main() -> None:
        async with await TracerClient.start() as tracer:
            await tracer.attach(program.pid)
            program.say()
            await anext(tracer.events())

    run(main())
    assert program.end() == -signal.SIGABRT
