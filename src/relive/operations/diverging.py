"""Where two runs part: replays, reproductions, and what was recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import Field

from relive.config import Settings
from relive.errors import NotFound, UsageError
from relive.incidents.runs import Runs
from relive.inspection.state_changes import FieldChange, mapping_changes
from relive.model.divergence import Divergence
from relive.model.outcome import InsideEvent, Measured, Outcome, Replay, Run
from relive.model.reproduction import Attempt, Reproduction
from relive.model.token_scope import Scope
from relive.operations.grammars import each_written_as
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.policies import check_ignore
from relive.operations.progress import Progress
from relive.operations.runs import RunDetail, show_run
from relive.replay.divergence import divergences, event_lines, text_changes
from relive.replay.verdict import outcome_words

__all__ = ["DIVERGENCE", "DivergenceParams", "RunsDifference", "divergence", "is_run_ref"]

_REF = re.compile(r"(?P<prefix>run/)?(?P<number>[0-9]{1,15})(?:\.(?P<part>[0-9]{1,9}|recorded))?")
_RUN_TEXT = "A run: NUMBER or run/NUMBER, with .2 its second one, with .recorded what it was compared with"

T = TypeVar("T", Run, Attempt)


class DivergenceParams(Params):
    """Which runs are compared."""

    before: str = Field(max_length=60, description=_RUN_TEXT)
    after: str = Field(max_length=60, description="Another run, written in the same way")
    ignore: Annotated[list[str], each_written_as(check_ignore)] = Field(
        default=[], max_length=100, description="What may differ: event:KIND or event:KIND:PATH"
    )


class RunsDifference(Result):
    """What differs between two runs.

    Attributes:
        before, after: the runs, as ``run/7.1``; both of one service.
        is_known: what happened inside is known of both, so that no divergence means that there is none.
        divergences: the first event that differs, then the first of each class that is not told by then.
        ended: how the two ended, where that differs.
        system_calls, allocations, figures: what differs by name, where both were replayed with ``measure``.
        body, log, events: as ``diff -u``; empty where they are equal, or not known of both.
    """

    before: str
    after: str
    service: str
    is_known: bool
    divergences: list[Divergence]
    ended: tuple[str, str] | None
    body: list[str]
    log: list[str]
    events: list[str]
    is_measured: bool = False
    system_calls: list[FieldChange] = Field(default=[])
    allocations: list[FieldChange] = Field(default=[])
    figures: list[FieldChange] = Field(default=[])


def is_run_ref(text: str) -> bool:
    """``run/7``: where commits may be named, too, the prefix tells a run."""
    return text.startswith("run/") and _REF.fullmatch(text) is not None


def divergence(settings: Settings, params: DivergenceParams, _progress: Progress) -> RunsDifference:
    """Compare two runs; secrets are masked.

    Raises:
        UsageError: a text names no run, or they are of different services.
        NotFound: there is no such run.
    """
    before, after = (_side(settings, text) for text in (params.before, params.after))
    if before.service != after.service:
        raise UsageError(
            f"{before.name} is of {before.service!r} and {after.name} of {after.service!r}",
            cause="only runs of one service have anything in common that could differ",
            remedy="name two replays or reproductions of one service",
        )
    return _compared(before, after, [check_ignore(text, inside_only=True) for text in params.ignore])


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two. ``body``, ``events``: None where they are not known."""

    name: str
    service: str
    ended: str
    body: str | None
    log: list[str]
    events: list[InsideEvent] | None
    measured: Measured | None = None


def _compared(before: _Side, after: _Side, ignore: Collection[str]) -> RunsDifference:
    known = before.events is not None and after.events is not None
    one, other = before.events or [], after.events or []
    bodies = before.body is not None and after.body is not None
    return RunsDifference(
        before=before.name,
        after=after.name,
        service=before.service,
        is_known=known,
        divergences=divergences(one, other, ignore) if known else [],
        ended=(before.ended, after.ended) if before.ended != after.ended else None,
        body=text_changes(_body_lines(before.body or ""), _body_lines(after.body or "")) if bodies else [],
        log=text_changes(before.log, after.log),
        events=text_changes(event_lines(one), event_lines(other)) if known else [],
        **_measured_changes(before.measured, after.measured),
    )


def _measured_changes(before: Measured | None, after: Measured | None) -> dict[str, Any]:
    if before is None or after is None:
        return {}
    pairs = {
        "system_calls": (before.system_calls, after.system_calls),
        "allocations": (before.allocations, after.allocations),
        "figures": (before.figures, after.figures),
    }
    changed = {name: mapping_changes(*map(_texts, pair)) for name, pair in pairs.items()}
    return {"is_measured": True, **changed}


def _texts(counts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items()}


def _body_lines(body: str) -> list[str]:
    """Of JSON a line for each value, so that one that differs is seen."""
    try:
        return json.dumps(json.loads(body), indent=1, sort_keys=True, ensure_ascii=False).splitlines()
    except (ValueError, RecursionError):
        return body.splitlines()


def _side(settings: Settings, text: str) -> _Side:
    number, part = _parsed(text)
    detail = show_run(settings, number)
    name = f"run/{number}.{part or 1}"
    if detail.replay is not None:
        return _of_replay(name, detail, detail.replay, part)
    assert detail.reproduction is not None
    return _of_reproduction(name, detail, detail.reproduction, part)


def _parsed(text: str) -> tuple[int, str | None]:
    """(its number, which of its runs); raises UsageError."""
    match = _REF.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} names no run",
            cause="a run is written 7 or run/7, its second one 7.2, and what was recorded 7.recorded",
            remedy="`relive replay` tells the number of the run that it has made",
        )
    return int(match["number"]), match["part"]


def _of_replay(name: str, detail: RunDetail, replay: Replay, part: str | None) -> _Side:
    if part == "recorded":
        return _of_outcome(name, detail, replay.recorded)
    run: Run = _numbered(name, replay.runs, part)
    if run.outcome is None:
        raise UsageError(
            f"{name} was never alive",
            cause=run.verdict.difference or "its branch could not be restored",
            remedy="name another of its runs",
        )
    return replace(_of_outcome(name, detail, run.outcome), measured=run.measured)


def _of_outcome(name: str, detail: RunDetail, outcome: Outcome) -> _Side:
    body = None if outcome.body_is_base64 else outcome.body
    return _Side(name, detail.service, outcome_words(outcome), body, outcome.log, outcome.events)


def _of_reproduction(name: str, detail: RunDetail, reproduction: Reproduction, part: str | None) -> _Side:
    """Of these nothing is kept of what happened inside, but how it ended and the log."""
    if part == "recorded":
        raised, status, end, log = (
            reproduction.recorded,
            reproduction.recorded_status,
            reproduction.recorded_end,
            list[str](),
        )
    else:
        attempt: Attempt = _numbered(name, reproduction.attempts, part)
        raised, status, end, log = attempt.raised, attempt.status, attempt.ended, attempt.log
    words = [f"answered with status {status}" if status is not None else end or "no answer came"]
    if raised is not None:
        words.append(f"{raised.type} in {raised.function or '?'} {raised.file}:{raised.line}")
    return _Side(name, detail.service, ", ".join(words), None, log, None)


def _numbered(name: str, runs: Sequence[T], part: str | None) -> T:
    found = next((one for one in runs if one.number == int(part or 1)), None)
    if found is None:
        raise NotFound(
            f"there is no {name}", cause=f"it has {len(runs)}", remedy="name one of these, or .recorded"
        )
    return found


def _look_up(settings: Settings, params: DivergenceParams) -> None:
    for text in (params.before, params.after):
        Runs(settings.runs).get(_parsed(text)[0])


DIVERGENCE = Operation(
    "divergence",
    DivergenceParams,
    RunsDifference,
    divergence,
    Faces(
        cli=("divergence", "diff"),
        rest=Route(
            "GET",
            "/divergence",
            frozenset({Scope.MEMORY}),
            "The first event at which two runs differ, of which class it is, and what else differs",
        ),
        mcp=Tool(
            Effect.READS,
            "The first event at which two runs (replays, or what was recorded: `7.recorded`) differ, and of which class: a "
            "time only, payload, or another way taken; with what differs in their ends, bodies, logs and events.",
        ),
    ),
    look_up=_look_up,
)
