"""What the fresh processes are answered with, laid beside their rings.

There are two files, whose form is specified in ``relive_recorder/playing/answers.py``: of the judged request (or of the program,
where there is none), and of what its processes asked when they began.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relive.recording.bodies import is_body_name
from relive.recording.events import Event, EventKind, is_within_a_call
from relive.replay.answers import event_line
from relive.replay.fresh.evidence import FreshInput

__all__ = ["ANSWERS", "is_whole", "judged_events", "write_answers"]

ANSWERS = ("1.jsonl", "2.jsonl")
_READINGS = frozenset({EventKind.CLOCK, EventKind.RANDOM})


def write_answers(case: FreshInput, rings: Path, policy: Mapping[str, str], *, has_request: bool) -> None:
    """Write them, readable for every user of the sandbox.

    Args:
        policy: kind of event, or "*", to "fail" or "pass": what becomes of a call without a recorded answer.
        has_request: a request is sent; otherwise the whole program is judged.

    Raises:
        OSError: there is no room.
    """
    directory = rings / "answers"
    directory.mkdir(mode=0o755)
    events = judged_events(case, has_request=has_request)
    # Programs that a program starts are run: they may be what failed, and find the same sealed sandbox.
    defaults = {"*": "fail"} if has_request else {"*": "fail", EventKind.SUBPROCESS.value: "pass"}
    is_known = bool(case.judged) or not has_request
    if not is_known:  # in a server that the recorder does not know, what it asks for the request is like what it asks at its start
        defaults = {"*": "pass"}
    header = {
        "format": "relive-answers",
        "version": 1,
        "policy": {**defaults, **policy},
        "clock": "recorded" if (has_request and is_known) or case.is_job or is_whole(case) else "real",
        "judged": case.judged if has_request else 0,
    }
    beginning = [event for event in case.beginning if "asked" in event.fields]
    _write(directory / ANSWERS[0], header, events)
    _write(directory / ANSWERS[1], header, beginning)
    for name in {event.fields.get("file") for event in (*events, *beginning)}:
        if is_body_name(name):
            with contextlib.suppress(FileNotFoundError):  # not kept: a miss then
                shutil.copyfile(case.bodies / name, directory / name)
                (directory / name).chmod(0o644)


def judged_events(case: FreshInput, *, has_request: bool) -> list[Event]:
    """The recorded events of what is judged, in their order.

    Of a program all that is known of its process, as if nothing of it had belonged to a request: a job is done there without its
    queue. Where that is not all it did (``is_whole``), without readings, which are found by their place alone.
    """
    if has_request:
        return [event for event in case.events if event.request == case.judged]
    if case.is_job:
        found = [event for event in case.events if event.request == case.judged]
    else:
        known = {_place(event): event for event in _own_beginning(case)}
        known.update((_place(event), event) for event in case.events)
        found = [known[place] for place in sorted(known)]
    keep_readings = case.is_job or is_whole(case)
    return [
        replace(event, request=0)
        for event in found
        if event.kind is not EventKind.HANDLING_STARTED and (keep_readings or event.kind not in _READINGS)
    ]


def is_whole(case: FreshInput) -> bool:
    """All that a program did before it failed is kept: its beginning goes on to where the events beside the incident begin."""
    first = min((_place(event) for event in case.events), default=0)
    return first == 1 or max((_place(event) for event in _own_beginning(case)), default=0) >= first > 0


def _own_beginning(case: FreshInput) -> list[Event]:
    return [event for event in case.beginning if event.fields.get("pid") == case.pid]


def _place(event: Event) -> int:
    """The event's number in its process."""
    number = event.fields.get("own_seq")
    return number if isinstance(number, int) else 0


def _write(path: Path, header: Mapping[str, object], events: Iterable[Event]) -> None:
    kept = (event for event in events if not is_within_a_call(event))
    lines: Sequence[str] = [json.dumps(header), *(event_line(event) for event in kept)]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o644)
