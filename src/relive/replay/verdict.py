"""Comparing two outcomes: pure functions, so that every rule can be tested without a process.

Rules, in order; the first that applies decides:

1. The replay ended in no failure (an answer below 500, of gRPC one with a status that is the caller's; or the service went on): not
   reproduced; if an earlier request had been answered otherwise than recorded, the replay had diverged there.
2. It ended in another way than recorded (another status, another signal, an answer instead of a crash): diverged.
3. What is known of the cause (``cause``: exceptions inside, stacks, the log) differs: diverged.
4. Bodies, where nothing showed the cause: diverged at the first difference, but for declared and known volatile parts. Where
   what happened inside is known of both and a call that the service made differs (``sequence``), an equal body, which may say
   no more than "Internal Server Error", is not enough: diverged at that call.
5. Something was missing that the recording does not hold (a server, an answer), an earlier request had ended another way than
   recorded, or nothing on both sides shows the cause: the same answer, cause not seen.
6. Reproduced: it ended the same way, the cause was seen on both sides alike, and nothing was missing.

Where the outcome differs, and something inside had differed before (another call, another answer, another reading), that is told
as the difference, and the outcome as a note: it came first, and is the likelier cause. Beside a reproduced failure it is only
noted: the same exception from the same frames is the same failure, by whatever way it came.

A placeholder in an answer is equal to the secret in whose place it stands: the recorder in a service gives the one where it had
seen the other.

Headers, log lines, times and bodies beside an equal cause are only noted: they vary with time and port numbers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from relive.model.outcome import End, Outcome, Verdict, VerdictKind
from relive.protocols.matching import takes_any_answer
from relive.recording.events import EventKind
from relive.recording.grpc import grpc_status
from relive.replay.cause import Cause, as_far_as_recorded, find_cause, is_same_line, missing_words
from relive.replay.difference import first_difference, is_equal, short
from relive.replay.placeholders import begins_same_text, has_placeholder, is_same_text
from relive.replay.sequence import first_differing_event, is_call
from relive.replay.usual_log import NOTHING_USUAL, UsualLog

__all__ = [
    "VOLATILE_HEADERS",
    "Earlier",
    "compare",
    "ended_otherwise",
    "is_failure",
    "outcome_words",
    "same_answer",
    "way_it_ended",
]

VOLATILE_HEADERS = frozenset(
    {
        "date",
        "age",
        "expires",
        "last-modified",
        "etag",
        "server-timing",
        "set-cookie",
        "x-process-time",
        "x-request-id",
    }
    | {"x-trace-id", "x-correlation-id", "traceparent", "connection", "keep-alive"}
)
_FAILING = 500


@dataclass(frozen=True, slots=True)
class Earlier:
    """The first difference in the answers to requests before the failing one.

    Attributes:
        difference: in words, with the number of the request.
        ended_otherwise: it had another status, or no answer; else the body differed, which it may.
    """

    difference: str
    ended_otherwise: bool


def is_failure(outcome: Outcome) -> bool:
    """It is what one calls a failure: no answer, a 5xx answer or such a one of gRPC, a death."""
    if outcome.end is End.ANSWERED:
        grpc = grpc_status(outcome.headers)
        return (outcome.status or 0) >= _FAILING or (grpc is not None and grpc.is_failure)
    return outcome.end is not End.NOTHING


def compare(
    recorded: Outcome,
    replayed: Outcome,
    *,
    ignore: Collection[str] = (),
    earlier: Earlier | None = None,
    request: int | None = None,
    usual: UsualLog = NOTHING_USUAL,
) -> Verdict:
    """Judge a replay.

    Args:
        ignore: what may differ: ``header:NAME``, ``body:PATH`` such as ``body:$.id``, ``event:KIND`` or ``event:KIND:PATH``.
        earlier: the first difference in the answers to requests before the failing one, if there was one.
        request: number of the failing one, for the words.
        usual: what the service writes to its log where nothing fails.
    """
    inside, is_other_call = _inside(recorded, replayed, ignore, request)
    call = inside if is_other_call else None
    cause = find_cause(recorded, replayed, calls_differ=call is not None, usual=usual)
    verdict = _judge(recorded, replayed, ignore, earlier, call, cause)
    verdict = verdict.model_copy(update={"missing": missing_words(replayed)})
    if inside is None or inside == verdict.difference:
        return verdict
    if verdict.kind is VerdictKind.REPRODUCED or verdict.difference is None:
        return verdict.model_copy(update={"inside": [inside]})
    return verdict.model_copy(update={"difference": inside, "notes": [verdict.difference, *verdict.notes]})


def _inside(
    recorded: Outcome, replayed: Outcome, ignore: Collection[str], request: int | None
) -> tuple[str | None, bool]:
    """The first event inside that differed, in words, and whether it is a call."""
    if recorded.events is None or replayed.events is None:
        return None, False
    found = first_differing_event(recorded.events, replayed.events, ignore)
    if found is None:
        return None, False
    place, one, other, words = found
    of = f" of request {request}" if request is not None else ""
    return f"event {place}{of}: {words}", is_call(one) or is_call(other)


def _judge(
    recorded: Outcome,
    replayed: Outcome,
    ignore: Collection[str],
    earlier: Earlier | None,
    call: str | None,
    cause: Cause,
) -> Verdict:
    """By the rules; ``call``: the first difference inside, if it is a call; ``cause``: of use where both ended the same way."""
    notes = [f"before it: {earlier.difference}"] if earlier else []
    how = way_it_ended(recorded, replayed)
    if how is not None:
        if is_failure(replayed) or not is_failure(recorded):
            return Verdict(kind=VerdictKind.DIVERGED, difference=how, notes=notes)
        if earlier:
            return Verdict(kind=VerdictKind.DIVERGED, difference=earlier.difference, notes=[how])
        return Verdict(kind=VerdictKind.NOT_REPRODUCED, difference=how, notes=notes)
    if cause.difference is not None:
        return Verdict(kind=VerdictKind.DIVERGED, difference=cause.difference, notes=notes)
    body = _bodies(recorded, replayed, ignore)
    if not cause.evidence and (body or call) is not None:
        return Verdict(kind=VerdictKind.DIVERGED, difference=body or call, notes=notes)
    unseen = _unseen(replayed, cause, earlier, ignore) if _fails(recorded) else []
    logs = _logs(recorded, as_far_as_recorded(recorded, replayed))
    notes += [note for note in (body, _headers(recorded, replayed, ignore), logs) if note]
    return Verdict(
        kind=VerdictKind.SAME_ANSWER if unseen else VerdictKind.REPRODUCED,
        evidence=cause.evidence,
        unseen=unseen,
        notes=notes,
    )


def _fails(recorded: Outcome) -> bool:
    """It is a failure, or had one that its answer does not show: it was caught, or came after an upgrade."""
    return is_failure(recorded) or any(event.kind == EventKind.FAILURE for event in recorded.events or ())


def _unseen(replayed: Outcome, cause: Cause, earlier: Earlier | None, ignore: Collection[str]) -> list[str]:
    """Why an equal failure is not enough."""
    unseen = missing_words(replayed)
    if replayed.stubs is not None and replayed.stubs.given:
        unseen += [
            f"with --ignore {name!r} a call takes the answer to another one"
            for name in ignore
            if takes_any_answer(name)
        ]
    if earlier is not None and earlier.ended_otherwise:
        unseen.append(f"before it: {earlier.difference}")
    return unseen if cause.evidence else [*unseen, *cause.unseen]


def ended_otherwise(recorded: Outcome, replayed: Outcome) -> bool:
    """They did not end the same way: another status, no answer, a death."""
    return way_it_ended(recorded, replayed) is not None


def same_answer(recorded: Outcome, replayed: Outcome, ignore: Collection[str] = ()) -> str | None:
    """The difference between two answers that matters (way of ending, status, body), or None."""
    return way_it_ended(recorded, replayed) or _bodies(recorded, replayed, ignore)


def way_it_ended(recorded: Outcome, replayed: Outcome) -> str | None:
    """Where the ways differ in which two outcomes ended (status, signal, silence), in words; None: they do not."""
    if recorded.end is not replayed.end:
        return f"recorded: {outcome_words(recorded)}; replayed: {outcome_words(replayed)}"
    if recorded.status != replayed.status:
        return f"status {recorded.status} was recorded, {replayed.status} came"
    one, other = grpc_status(recorded.headers), grpc_status(replayed.headers)
    if (one and one.code) != (other and other.code):
        return f"{one or 'no gRPC status'} was recorded, {other or 'none'} came"
    if recorded.end is End.DIED and _death(recorded) != _death(replayed):
        return f"recorded: {outcome_words(recorded)}; replayed: {outcome_words(replayed)}"
    return None


def _death(outcome: Outcome) -> tuple[int | None, int | None, bool]:
    return outcome.signal, outcome.exit_status, outcome.worker


def outcome_words(outcome: Outcome) -> str:
    """How it ended: ``answered with status 500``."""
    match outcome.end:
        case End.ANSWERED:
            return f"answered with {grpc_status(outcome.headers) or f'status {outcome.status}'}"
        case End.BROKEN:
            return "the connection broke before the answer was whole"
        case End.NO_ANSWER:
            return "no answer came"
        case End.DIED:
            who = (
                "the service"
                if outcome.fault is None or outcome.fault.is_root
                else "a process of the service"
            )
            if outcome.out_of_memory:
                return "the kernel killed it for want of memory"
            if outcome.signal:
                return f"{who} died of signal {outcome.signal}"
            return f"{'a worker' if outcome.worker else 'it'} ended with status {outcome.exit_status}"
        case End.NOTHING:
            return "nothing failed"


def _bodies(recorded: Outcome, replayed: Outcome, ignore: Collection[str]) -> str | None:
    if recorded.body_cut or replayed.body_cut:
        return _cut_bodies(recorded, replayed)
    if is_same_text(recorded.body, replayed.body):
        return None
    paths = {item.removeprefix("body:") for item in ignore if item.startswith("body:")}
    try:
        one, other = json.loads(recorded.body), json.loads(replayed.body)
    except (ValueError, RecursionError):
        return f"body: {short(recorded.body)} was recorded, {short(replayed.body)} came"
    found = first_difference(one, other, paths, is_same=_is_same)
    return None if found is None else f"body {found}"


def _cut_bodies(recorded: Outcome, replayed: Outcome) -> str | None:
    """As far as both are kept, and how long they were."""
    if not _begin_alike(recorded, replayed):
        return "the kept part of the body differs"
    one, other = (len(_bytes(outcome)) + outcome.body_cut for outcome in (recorded, replayed))
    # What the recorder in the service gives back has placeholders of another length; of chunks the recording has the frames, too.
    is_exact = not has_placeholder(_bytes(replayed)) and not any(
        name == "transfer-encoding" for name, _ in recorded.headers
    )
    return f"body: {one} bytes were recorded, {other} came" if is_exact and one != other else None


def _bytes(outcome: Outcome) -> bytes:
    return base64.b64decode(outcome.body) if outcome.body_is_base64 else outcome.body.encode()


def _begin_alike(recorded: Outcome, replayed: Outcome) -> bool:
    """As far as both are kept."""
    if recorded.body_is_base64 or replayed.body_is_base64:
        one, other = _bytes(recorded), _bytes(replayed)
        is_shorter = len(one) <= len(other)
        return other.startswith(one) if is_shorter else one.startswith(other) and replayed.body_cut > 0
    kept = recorded.body[: len(replayed.body)] if replayed.body_cut else recorded.body
    return begins_same_text(kept, replayed.body)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return is_same_text(one, other)
    return is_equal(one, other)


def _headers(recorded: Outcome, replayed: Outcome, ignore: Collection[str]) -> str | None:
    ignored = VOLATILE_HEADERS | {
        item.removeprefix("header:").lower() for item in ignore if item.startswith("header:")
    }
    one = [header for header in recorded.headers if header[0] not in ignored]
    other = [header for header in replayed.headers if header[0] not in ignored]
    for left, right in zip_longest(one, other):
        if left != right:
            return f"header {left} was recorded, {right} came"
    return None


def _logs(recorded: Outcome, replayed: Outcome) -> str | None:
    for index, (one, other) in enumerate(zip_longest(recorded.log, replayed.log)):
        if one is None or other is None or not is_same_line(one, other):
            left, right = ("nothing" if line is None else short(line) for line in (one, other))
            return f"log line {index + 1} differs: {left} was recorded, {right} came"
    return None
