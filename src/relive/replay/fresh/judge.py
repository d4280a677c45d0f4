"""Judging an attempt: pure functions over what was recorded and what came.

Rules, in order; the first that applies decides:

1. Nothing failed: no exception escaped, and the answer was below 500 (or, of what failed outside of any request, the service ended
   with status 0, or had not ended when the time was over): not reproduced.
2. The same exception escaped at the same place: its type, its message and its place are equal, and so is the status of the answer
   where both are known. The place is the innermost frame of the service's own code: file, function and line, or at another line the
   same text of the line (lines move from one revision to another; that is noted). Where nothing was missing (a server, an answer):
   reproduced. Else it is the same answer, its cause not seen, as in a replay.
3. Else it diverged. What differed first is the first event of the request that differed (``relive.replay.sequence``), else the
   first call of the request that has no recorded answer, else the exception.

Placeholders of secrets are equal to each other, addresses in messages too: both are made anew by each process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from relive.model.outcome import End, InsideEvent, Outcome
from relive.model.reproduction import Raised, ReproductionKind
from relive.recording.events import EventKind
from relive.replay.cause import find_cause, missing_words
from relive.replay.difference import short
from relive.replay.sequence import first_differing_event
from relive.replay.usual_log import NOTHING_USUAL, UsualLog
from relive.replay.verdict import is_failure, way_it_ended

__all__ = ["Came", "FreshJudgement", "first_difference_inside", "judge", "judge_end", "same_failure"]

_PLACEHOLDER = re.compile(r"<secret:[0-9a-f]{8}>")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_FAILING = 500


@dataclass(frozen=True, slots=True)
class Came:
    """What came of an attempt.

    Attributes:
        raised: exceptions that escaped from what is judged, in their order.
        status: of the answer, None for none; how: why there is none, in words.
        exit_status: of the service as a shell shows it, None while it runs.
        events: what happened in the request.
        is_answered: a request was sent, and its answer is whole; is_taken: the service took its connection.
        is_request: a request was sent.
        missed: the first call of what is judged that had no recorded answer, in words; None: none.
        outcome: of the request, with its body and the log meanwhile, or of the service, where that ended as it had ended, or none
            was sent; with what was not reached, and calls of what is judged that had no recorded answer.
    """

    raised: Sequence[Raised]
    outcome: Outcome
    status: int | None = None
    how: str = ""
    exit_status: int | None = None
    events: Sequence[InsideEvent] = ()
    is_answered: bool = False
    is_taken: bool = True
    is_request: bool = True
    missed: str | None = None


@dataclass(frozen=True, slots=True)
class FreshJudgement:
    """A verdict with its reason, as in an ``Attempt``; ``raised`` is the exception that was compared."""

    kind: ReproductionKind
    difference: str | None = None
    notes: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    raised: Raised | None = None


def judge(
    recorded: Raised,
    recorded_status: int | None,
    recorded_events: Sequence[InsideEvent],
    came: Came,
    ignore: Collection[str] = (),
) -> FreshJudgement:
    """By the rules above; ``ignore`` as for ``first_differing_event``."""
    inside = first_difference_inside(recorded_events, came.events, ignore)
    if not came.raised and _went_well(came):
        notes = [inside] if inside else []
        return FreshJudgement(
            ReproductionKind.NOT_REPRODUCED, f"no exception escaped: {_well_words(came)}", notes
        )
    for raised in came.raised:
        if same_failure(recorded, raised) is None and not _other_status(recorded_status, came):
            notes = [note for note in (_moved(recorded, raised), inside) if note]
            evidence = [f"the same exception at the same place: {_words(raised)}"]
            missing = missing_words(came.outcome, is_fresh=True)
            kind = ReproductionKind.SAME_ANSWER if missing else ReproductionKind.REPRODUCED
            return FreshJudgement(kind, None, notes, evidence, missing, raised)
    outcome, other = _outcome(recorded, recorded_status, came)
    first = inside or came.missed
    if first is None:
        return FreshJudgement(ReproductionKind.DIVERGED, outcome, raised=other)
    return FreshJudgement(ReproductionKind.DIVERGED, first, [outcome], raised=other)


def judge_end(
    recorded: Outcome,
    recorded_events: Sequence[InsideEvent],
    came: Came,
    ignore: Collection[str] = (),
    usual: UsualLog = NOTHING_USUAL,
) -> FreshJudgement:
    """Of a failure without an exception (an answer, silence, a death): compared as a replay's is (``relive.replay.cause``).

    Where it ended the same way, and nothing shows the cause, or something was missing, that is no reproduction.
    """
    inside = first_difference_inside(recorded_events, came.events, ignore)
    if not is_failure(came.outcome):
        lives = ", and the service went on" if recorded.end is End.DIED else ""
        return FreshJudgement(
            ReproductionKind.NOT_REPRODUCED, f"status {came.status} came{lives}", [inside] if inside else []
        )
    other = way_it_ended(recorded, came.outcome)
    if other is not None:
        how = _answer_words(recorded, came) if recorded.end in (End.ANSWERED, End.BROKEN) else other
        first = inside or came.missed
        return FreshJudgement(ReproductionKind.DIVERGED, first or how, [how] if first else [])
    cause = find_cause(recorded, came.outcome, usual=usual)
    if cause.difference is not None:
        return FreshJudgement(ReproductionKind.DIVERGED, cause.difference, [inside] if inside else [])
    unseen = missing_words(came.outcome, is_fresh=True) + (cause.unseen if not cause.evidence else [])
    kind = ReproductionKind.SAME_ANSWER if unseen else ReproductionKind.REPRODUCED
    return FreshJudgement(kind, None, [inside] if inside else [], cause.evidence, unseen)


def _answer_words(recorded: Outcome, came: Came) -> str:
    what = f"status {recorded.status} was recorded, " if recorded.status is not None else ""
    return f"{what}{f'status {came.status}' if came.is_answered else came.how or 'no answer'} came"


def _went_well(came: Came) -> bool:
    if came.is_request:
        return came.is_answered and came.status is not None and came.status < _FAILING
    return came.exit_status in (0, None)


def _well_words(came: Came) -> str:
    if came.is_request:
        return f"status {came.status} came"
    return "the program ended with status 0" if came.exit_status == 0 else came.how


def _other_status(recorded: int | None, came: Came) -> bool:
    return recorded is not None and came.is_request and came.status != recorded


def _outcome(recorded: Raised, recorded_status: int | None, came: Came) -> tuple[str, Raised | None]:
    for raised in came.raised:
        difference = same_failure(recorded, raised)
        if difference is not None:
            return difference, raised
        return f"status {recorded_status} was recorded, {came.status or came.how or 'none'} came", raised
    if came.exit_status is not None:
        return f"no exception was told; the program ended with status {came.exit_status}", None
    if came.status is not None:
        return f"no exception was told; status {came.status} came", None
    return came.how or "no exception escaped within the limit", None


def same_failure(recorded: Raised, came: Raised) -> str | None:
    """Where two exceptions first differ, in words; None when they count as the same."""
    if recorded.type != came.type:
        return f"{_words(recorded)} was recorded, {_words(came)} came"
    if _masked(recorded.text) != _masked(came.text):
        return f"message {short(recorded.text)} of {recorded.type} was recorded, {short(came.text)} came"
    if (recorded.file, recorded.function) != (came.file, came.function):
        return f"{_place(recorded)} was recorded, {_place(came)} came"
    if recorded.line == came.line:
        return None
    if (
        recorded.source is not None
        and came.source is not None
        and _masked(recorded.source) == _masked(came.source)
    ):
        return None
    return f"{_place(recorded)} was recorded, {_place(came)} came"


def _moved(recorded: Raised, came: Raised) -> str | None:
    if recorded.line == came.line:
        return None
    return f"the line moved from {recorded.line} to {came.line}: its text and its function are the same"


def _words(raised: Raised) -> str:
    return (
        f"{raised.type}: {short(raised.text)} at {_place(raised)}"
        if raised.text
        else f"{raised.type} at {_place(raised)}"
    )


def _place(raised: Raised) -> str:
    return (
        f"{raised.file}:{raised.line} in {raised.function}"
        if raised.file
        else "no frame of the service's own code"
    )


def _masked(text: str) -> str:
    return _ADDRESS.sub("0x", _PLACEHOLDER.sub("<secret>", text))


def first_difference_inside(
    recorded: Sequence[InsideEvent], came: Sequence[InsideEvent], ignore: Collection[str] = ()
) -> str | None:
    """The first event up to the failure that differed, in words; None when none did, or nothing is known.

    What came beside that which was recorded is not counted: what is kept ends somewhere behind the failure, in the
    middle of what other threads did. A call among it has no recorded answer, and is told as that.
    """
    wanted = _up_to_failure([_without_placeholders(event) for event in recorded])
    found = first_differing_event(wanted, [_without_placeholders(event) for event in came], ignore)
    if not recorded or found is None or found[1] is None:
        return None
    return f"event {found[0]}: {found[3]}"


def _up_to_failure(events: list[InsideEvent]) -> list[InsideEvent]:
    for index, event in enumerate(events):
        if event.kind == EventKind.FAILURE:
            return events[:index]
    return events


def _without_placeholders(event: InsideEvent) -> InsideEvent:
    text = json.dumps(event.about)
    if "<secret:" not in text:
        return event
    return event.model_copy(update={"about": json.loads(_PLACEHOLDER.sub("<secret>", text))})
