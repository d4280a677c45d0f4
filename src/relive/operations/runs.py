"""Runs: what replays and reproductions showed, whoever asked for them."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import Field

from relive.config import Settings
from relive.incidents.report.masking import mask_for
from relive.incidents.runs import RunRow, Runs
from relive.model.outcome import Replay
from relive.model.reproduction import Reproduction
from relive.operations.operation import Params, Result
from relive.replay.outline import OTHER, outline

__all__ = [
    "RunDetail",
    "RunPage",
    "RunRecord",
    "RunVerdict",
    "RunsParams",
    "list_runs",
    "marked_run",
    "save_replay",
    "save_reproduction",
    "show_run",
    "verdicts_of",
]


class RunKind(StrEnum):
    """What was done: from a commit, or in a fresh process."""

    REPLAY = "replay"
    REPRODUCE = "reproduce"


class RunRecord(Result):
    """A run in a list; see ``store.runs.RunRow``."""

    number: int
    kind: RunKind
    service: str
    incident: int | None
    began_wall_ns: int
    seconds: float
    times: int
    reproduced: int
    verdict: str

    @classmethod
    def of(cls, row: RunRow) -> RunRecord:
        """From what is kept."""
        return cls.model_validate(asdict(row))


class RunDetail(RunRecord):
    """A run in full; the one of the two that fits ``kind`` is there."""

    replay: Replay | None = None
    reproduction: Reproduction | None = None


class RunsParams(Params):
    """Which runs."""

    service: str | None = Field(default=None, description="Only those of this service")
    incident: int | None = Field(
        default=None, ge=1, le=(1 << 53) - 1, description="Only those of this incident"
    )
    after: int | None = Field(default=None, ge=1, le=(1 << 53) - 1, description="`next` of the page before")
    limit: int = Field(default=50, ge=1, le=500, description="At most so many")


class RunPage(Result):
    """Runs, newest first, a page of them."""

    items: list[RunRecord]
    next: int | None


def list_runs(settings: Settings, params: RunsParams) -> RunPage:
    """One page of them."""
    rows = Runs(settings.runs).page(
        service=params.service, incident=params.incident, after=params.after, limit=params.limit + 1
    )
    items = [RunRecord.of(row) for row in rows[: params.limit]]
    return RunPage(items=items, next=items[-1].number if len(rows) > params.limit else None)


def show_run(settings: Settings, number: int) -> RunDetail:
    """One in full; raises NotFound."""
    row, result = Runs(settings.runs).get(number)
    read: dict[str, Any] = (
        {"replay": Replay.model_validate_json(result)}
        if row.kind == RunKind.REPLAY
        else {"reproduction": Reproduction.model_validate_json(result)}
    )
    return mask_for(settings, row.service).model(RunDetail(**asdict(row), **read))


class RunVerdict(Result):
    """What one run of a replay, or attempt of a reproduction, showed; ``difference``: the first that matters.

    Attributes:
        missing, evidence, unseen, played: see ``relive.model.outcome.Verdict``.
    """

    number: int
    verdict: str
    missing: list[str]
    difference: str | None
    evidence: list[str]
    unseen: list[str]
    played: str | None
    notes: list[str]
    packets_left: int | None

    def outlined(self) -> RunVerdict:
        """For who may not see what the service said: which kind of thing differed and where, without any text of it.

        ``missing`` holds none.
        """

        def known(words: list[str]) -> list[str]:
            return [line for line in map(outline, words) if line != OTHER]

        shown = {"evidence": known(self.evidence), "notes": known(self.notes)}
        shown["unseen"] = [*self.missing, *known([one for one in self.unseen if one not in self.missing])]
        difference = outline(self.difference) if self.difference is not None else None
        return self.model_copy(update={**shown, "difference": difference})


def verdicts_of(settings: Settings, number: int) -> list[RunVerdict]:
    """Of each of its runs; raises NotFound."""
    run = show_run(settings, number)
    if run.replay is not None:
        return [
            RunVerdict(
                number=one.number,
                verdict=one.verdict.kind.value,
                missing=one.verdict.missing,
                difference=one.verdict.difference,
                evidence=one.verdict.evidence,
                unseen=one.verdict.unseen,
                played=one.verdict.played,
                notes=[*one.verdict.notes, *one.verdict.inside],
                packets_left=one.outcome.packets_left if one.outcome is not None else None,
            )
            for one in run.replay.runs
        ]
    assert run.reproduction is not None
    return [
        RunVerdict(
            number=one.number,
            verdict=one.kind.value,
            missing=one.missing,
            difference=one.difference,
            evidence=one.evidence,
            unseen=one.unseen,
            played=one.played,
            notes=one.notes,
            packets_left=one.packets_left,
        )
        for one in run.reproduction.attempts
    ]


def save_replay(settings: Settings, result: Replay, began_wall_ns: int, seconds: float) -> int:
    """Keep what a replay showed; returns the number of the run."""
    kinds = [run.verdict.kind.value for run in result.runs]
    return _save(settings, RunKind.REPLAY, result, kinds, began_wall_ns, seconds)


def save_reproduction(settings: Settings, result: Reproduction, began_wall_ns: int, seconds: float) -> int:
    """Keep what a reproduction showed; returns the number of the run."""
    kinds = [attempt.kind.value for attempt in result.attempts]
    return _save(settings, RunKind.REPRODUCE, result, kinds, began_wall_ns, seconds)


def _save(
    settings: Settings,
    kind: RunKind,
    result: Replay | Reproduction,
    verdicts: list[str],
    began_wall_ns: int,
    seconds: float,
) -> int:
    return Runs(settings.runs).add(
        kind=kind.value,
        service=result.service,
        incident=result.incident,
        began_wall_ns=began_wall_ns,
        seconds=seconds,
        times=len(verdicts),
        reproduced=result.reproduced,
        verdict=next((one for one in verdicts if one != "reproduced"), "reproduced"),
        result=result.model_dump_json(),
        mark=settings.mark,
    )


R = TypeVar("R", Replay, Reproduction)


def marked_run(settings: Settings, kind: type[R]) -> R | None:
    """What was kept of the run that carries ``settings.mark``; None if that is none or no run does."""
    text = Runs(settings.runs).marked(settings.mark) if settings.mark is not None else None
    return kind.model_validate_json(text) if text is not None else None
