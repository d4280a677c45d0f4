"""Kinds of tasks that do harm that can be counted: each step leaves a file of a new name, so twice leaves two."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from relive.errors import RefUnknown
from relive.server.task_context import TaskAttempt, TaskKind, never_done

GIVE_UP = 60.0  # [s] that anything here waits for


class Params(BaseModel):
    """What the kinds below are given; each makes its files in ``directory``."""

    directory: Path
    words: str = ""


class Outcome(BaseModel):
    """What they return: the names of the files that were made."""

    made: list[str] = []
    process: int = 0


def die_if_planned(directory: Path, point: str) -> None:
    """Kill this process if ``directory/plan`` names this point, the first time it comes here."""
    try:
        (directory / f"plan {point}").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def harms(directory: Path, task: str) -> list[str]:
    """What a task did, by step, in order."""
    return sorted(path.name.split(".")[1] for path in directory.glob(f"{task}.*.done"))


def _harm(work: TaskAttempt, params: Params, step: str) -> str:
    def act() -> str:
        name = f"{work.task}.{step}.{uuid.uuid4().hex}"
        half = params.directory / f"{name}.half"
        half.touch()
        die_if_planned(params.directory, f"{work.task} half {step}")
        half.rename(params.directory / f"{name}.done")
        return name

    def found() -> str | None:
        return next((path.stem for path in params.directory.glob(f"{work.task}.{step}.*.done")), None)

    return work.step(step, act, result=str, found=found)


def _steps(words: str) -> Callable[[TaskAttempt, Params], Outcome]:
    def run(work: TaskAttempt, params: Params) -> Outcome:
        return Outcome(made=[_harm(work, params, step) for step in words.split()], process=os.getpid())

    return run


def _remove_halves(work: TaskAttempt, params: Params) -> None:
    for path in params.directory.glob(f"{work.task}.*.half"):
        path.unlink()


def _wait(path: Path, work: TaskAttempt) -> None:
    """Wait for a file, telling how often it was looked for."""
    never = threading.Event()
    with work.progress("waiting", 1) as at:
        for _ in range(int(GIVE_UP / 0.01)):
            if path.exists():
                return
            at(0)
            never.wait(0.01)
    raise AssertionError(f"{path} never came")


def _hold(work: TaskAttempt, params: Params) -> Outcome:
    """Say that it was begun, and wait for the file ``go``."""

    def act() -> int:
        (params.directory / f"begun {os.getpid()}").touch()
        _wait(params.directory / "go", work)
        return os.getpid()

    return Outcome(process=work.step("hold", act, result=int, found=never_done))


def _tell(work: TaskAttempt, params: Params) -> Outcome:
    """Progress and sentences, with the last of each just before the end."""
    with work.progress("counting", 1000) as at:
        for number in range(1001):
            at(number)
    with work.transfer("sending", 30) as more:
        more(10)
        more(20)
    work.status(params.words)
    return Outcome()


def _fail(work: TaskAttempt, params: Params) -> Outcome:
    if params.words == "bug":
        raise ZeroDivisionError("one by zero")
    raise RefUnknown("there is no commit 'x'", cause="nobody made it", remedy="make it")


HARM = TaskKind("harm", Params, Outcome, _steps("first second"), _remove_halves)
HARM_OF_NEWER_CODE = TaskKind("harm", Params, Outcome, _steps("between first second last"), _remove_halves)
HOLD = TaskKind("hold", Params, Outcome, _hold)
TELL = TaskKind("tell", Params, Outcome, _tell)
FAIL = TaskKind("fail", Params, Outcome, _fail)
KINDS = {"old": [HARM, HOLD, TELL, FAIL], "new": [HARM_OF_NEWER_CODE, TELL]}
