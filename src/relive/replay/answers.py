"""Recorded answers, laid beside the rings of a branch. The file is specified in ``relive_recorder/playing/answers.py``."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from relive.model.branch import Clock
from relive.recording.bodies import is_body_name
from relive.recording.events import Event, EventKind, is_within_a_call
from relive.replay.inprocess_events import EventWindow

__all__ = ["AnswerFiles", "Calls", "event_line"]

_OF_THE_READER = frozenset({"pid", "own_seq", "thread", "lane"})
_MOST_SIBLINGS = 64


class Calls(StrEnum):
    """Who answers the calls that the service makes in a replay."""

    RECORDED = "recorded"  # the recording, where the inside of the service was recorded
    REAL = "real"  # nobody but the sealed network


@dataclass(slots=True)
class _Process:
    """One process of the window.

    Attributes:
        name: of its file.
        children: (file, request, lane) of those it forked, in order.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    children: list[tuple[str, int, int]] = field(default_factory=list)
    serves: bool = False


class AnswerFiles:
    """What every branch of one replay finds beside its rings.

    Args:
        taken_ns: monotonic time of the commit; processes that began later are not in it.
        policy: kind of event, or "*", to "fail" or "pass".
        clock: with NOW, readings of clocks are not answered.
    """

    def __init__(self, window: EventWindow, taken_ns: int, policy: Mapping[str, str], clock: Clock) -> None:
        self._bodies = window.bodies
        self._body_names: set[str] = set()
        self._header = {
            "format": "relive-answers",
            "version": 1,
            "policy": dict(policy),
            "clock": "real" if clock is Clock.NOW else "recorded",
        }
        self._processes: list[_Process] = []
        self._started: list[tuple[str, list[str]]] = []
        now: dict[int, _Process] = {}
        for event in window.events:
            pid = int(event.fields.get("pid", 0))
            if event.kind is EventKind.PROCESS_STARTED and event.mono_ns > taken_ns:
                process = self._new(f"{pid}-{event.seq}.jsonl")
                parent = event.fields.get("forked_from")
                if isinstance(parent, int):
                    place = process.name, event.request, int(event.fields.get("lane", 1))
                    self._of(now, parent).children.append(place)
                elif isinstance(command := event.fields.get("command"), list):
                    self._started.append((process.name, [str(word) for word in command]))
                now[pid] = process
            process = self._of(now, pid)
            self._add(process, event)

    def _of(self, now: dict[int, _Process], pid: int) -> _Process:
        """The process that has this number now; that of the commit, if none began later."""
        if pid not in now:
            now[pid] = self._new(f"{pid}.jsonl")
        return now[pid]

    def _new(self, name: str) -> _Process:
        process = _Process(name)
        self._processes.append(process)
        return process

    def _add(self, process: _Process, event: Event) -> None:
        if is_within_a_call(event):
            return
        body = event.fields.get("file")
        if is_body_name(body):
            self._body_names.add(body)
        process.serves = process.serves or event.kind is EventKind.HANDLING_STARTED
        process.lines.append(event_line(event))

    def lay(self, rings: Path) -> None:
        """Write them into ``answers`` in the directory of a branch's rings, readable for every user of the branch.

        Raises:
            DiskFull, OSError: there is no room.
        """
        directory = rings / "answers"
        directory.mkdir(mode=0o755)
        started = directory / "started.json"
        started.write_text(_encode({**self._header, "started": self._started}))
        started.chmod(0o644)
        written = set()
        for process in self._processes:
            self._write(directory, process)
            written.add(process.name)
        for ring in rings.glob("*.ring"):  # a process that did nothing has nothing to be answered
            name = f"{ring.name.partition('-')[0]}.jsonl"
            if name not in written:
                written.add(name)
                self._write(directory, _Process(name))
        for name in self._body_names:
            with contextlib.suppress(FileNotFoundError):  # retention dropped it: a miss then
                shutil.copyfile(self._bodies / name, directory / name)
                (directory / name).chmod(0o644)

    def _write(self, directory: Path, process: _Process) -> None:
        siblings = [one.name for one in self._processes if one.serves and one is not process][:_MOST_SIBLINGS]
        header = {**self._header, "children": process.children, "siblings": siblings}
        path = directory / process.name
        with path.open("x") as file:
            file.write("\n".join([_encode(header), *process.lines]) + "\n")
        path.chmod(0o644)


def event_line(event: Event) -> str:
    """One event as a line of a file of answers, without its newline."""
    fields = {name: value for name, value in event.fields.items() if name not in _OF_THE_READER}
    line = [
        event.fields.get("own_seq", 0),
        event.kind.value,
        event.fields.get("lane", 1),
        event.request,
        fields,
        base64.b64encode(event.data).decode(),
    ]
    return _encode(line)


def _encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
