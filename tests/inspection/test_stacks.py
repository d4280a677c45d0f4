"""Stacks and tasks as the inspector tells them, of this process."""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
from typing import Any

from relive.inspection.python.program_text import program_text
from relive_inprocess import relive_inspector as inspector

_STACKS = json.dumps({"kind": "stacks", "most": 100})


def test_a_thread_that_python_did_not_know_before_it_was_asked_is_none_of_the_service():
    """A thread of a C library, in which the question comes: it has no name, and runs nothing else."""
    libc, told = ctypes.CDLL(None), list[Any]()
    program = f"{program_text(inspector)}\ndef ask(_):\n    told.append(answer(wanted))\n    return 0\n"
    names: dict[str, Any] = {"told": told, "wanted": _STACKS}
    exec(compile(program, "<relive>", "exec"), names)  # as in a branch
    begin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(names["ask"])
    thread = ctypes.c_ulong()
    # Whoever runs the tests may have such threads, too.
    there = {str(number) for number in sys._current_frames()}
    libc.pthread_create(ctypes.byref(thread), None, begin, None)
    libc.pthread_join(thread, None)
    threads = json.loads(told[0])["threads"]
    assert [one["name"] for one in threads if one["name"].isdigit() and one["name"] not in there] == []
    assert any(one["name"] == "MainThread" for one in threads)


def test_frames_of_a_task_are_told_innermost_first_as_those_of_a_thread():
    async def inner() -> None:
        await asyncio.sleep(10)

    async def outer() -> None:
        await inner()

    async def ask() -> Any:
        task = asyncio.create_task(outer(), name="waits")
        await asyncio.sleep(0)
        found = json.loads(inspector.answer(_STACKS))
        task.cancel()
        return found

    (task,) = [one for one in asyncio.run(ask())["tasks"] if one["name"] == "waits"]
    assert [one["function"].rpartition(".")[2] for one in task["frames"]] == ["sleep", "inner", "outer"]
    assert [one.split()[0] for one in task["coroutines"]] == ["outer", "inner", "sleep"]
