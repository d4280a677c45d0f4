"""What shows that a replay failed for the recorded reason: pure functions, so that every rule can be tested without a process.

An equal answer is not an equal failure: a generic 500, an exit status and silence look alike whatever caused them, and in a
sandbox the likeliest other cause is the sandbox itself, since a server that was not recorded is missing there. So there are two
questions: what was seen of the cause, on both sides alike, and what was missing.

Evidence, the first that both sides have decides:

0. Of a kill for want of memory: the counts of the control groups.
   Of a fatal signal: its code, the class of its address (in the first page, or not), the instruction, and the calls that led
   there: every abort ends at one instruction. A restored process has the addresses it had. Where only the calls differ, or are
   not known, it may be what earlier calls left on the stack: then a stack in the log decides. A line that is none does not, since
   it may be of the request, and not of its end.
   Of silence: where the threads stand that stood elsewhere in the commit before; of one that runs in a loop, that it comes by
   where it was.
1. Exceptions that the recorder saw within the request: the last ones have the same fingerprint, or one side differs.
2. Stacks in the log since the request began: each side's last one is among the other's (other threads print theirs meanwhile).
   One that requests print that go well (``usual_log``) shows nothing, nor does another harmless one where another follows it.
3. What the service wrote last, numbers apart, without lines that only name the status of the answer, without usual ones, and of a
   worker's exit without what its master says of that.
4. Calls that were made of others, where the recorder saw them and each was answered from the recording alike: those of the
   request inside, or all of the service up to the failure at its border.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import zip_longest

from relive.model.outcome import Fault, InsideEvent, Outcome, Stack, ThreadPlace
from relive.model.stack import find_stacks
from relive.recording.events import EventKind
from relive.replay.difference import short
from relive.replay.placeholders import is_same_text
from relive.replay.sequence import is_call
from relive.replay.usual_log import NOTHING_USUAL, UsualLog, plain_line

__all__ = ["Cause", "as_far_as_recorded", "find_cause", "is_same_line", "missing_words", "stack_difference"]

_OF_CONNECTION = re.compile(r":\d+ (Accepted|Closing)$")  # what the server in PHP (``php -S``) says of each
_MOST_MISSING = 5
_PAGE = 4096
_NEAR = 256  # [bytes] of instructions: those of a function or two
_DEPTH = 256  # [bytes] of stack


@dataclass(frozen=True, slots=True)
class Cause:
    """What was found.

    Attributes:
        difference: the failure has another cause, in words; None where none was seen.
        evidence: what shows the cause on both sides alike, in words.
        unseen: what could not be compared, or was not alike and may vary, in words.
    """

    difference: str | None = None
    evidence: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def find_cause(
    recorded: Outcome, replayed: Outcome, *, calls_differ: bool = False, usual: UsualLog = NOTHING_USUAL
) -> Cause:
    """Compare the causes of two outcomes that ended the same way.

    Args:
        calls_differ: of the calls inside one was not as recorded.
        usual: what the service writes to its log where nothing fails.
    """
    replayed = as_far_as_recorded(recorded, replayed)
    memory = _memory(recorded, replayed)
    if memory is not None:
        return memory
    fault = _faults(recorded, replayed)
    if fault is not None and not fault.unseen:
        return fault
    for found in (_exceptions(recorded, replayed), _stacks(recorded, replayed, usual)):
        if found is not None:
            return fault if fault is not None and found.unseen else found
    if fault is not None:
        return fault
    found = _standing(recorded, replayed) or _last_words(recorded, replayed, usual)
    calls = [] if calls_differ else _calls(recorded, replayed)
    if not calls:
        return found
    return Cause(evidence=[*found.evidence, *calls])


def as_far_as_recorded(recorded: Outcome, replayed: Outcome) -> Outcome:
    """The replayed outcome without the lines at its end that others had written after a worker's exit when it was recorded."""
    if not recorded.log_after:
        return replayed
    last = next((line for line in reversed(recorded.log) if line.strip()), None)
    lines = list(replayed.log)
    while lines and (last is None or not is_same_line(last, lines[-1])):
        if lines[-1].strip() and not any(is_same_line(one, lines[-1]) for one in recorded.log_after):
            break
        lines.pop()
    return replayed.model_copy(update={"log": lines})


def missing_words(outcome: Outcome, *, is_fresh: bool = False) -> list[str]:
    """What the service in a branch wanted from others and did not get, since it was not recorded.

    Args:
        is_fresh: of a process that was started anew, for which nobody stands in at the network, recorded or not.
    """
    why = "nobody answers for it in a fresh process" if is_fresh else "what it said there was not recorded"
    words = [
        f"the service could not reach {one.to} ({_times(one.times)}); {why}" for one in outcome.unreached
    ]
    words += [
        f"the connection to {one} was open in the commit, was not recorded, and was closed when the service came to it"
        for one in outcome.cut_off
    ]
    if outcome.stubs is not None:
        words += [f"{one.to} was never recorded ({_times(one.times)})" for one in outcome.stubs.strangers]
    misses = _own_misses(outcome)
    if misses:
        words.append(f"{_counted(misses)} had no recorded answer")
    if len(words) > _MOST_MISSING:
        words = [*words[:_MOST_MISSING], f"and {len(words) - _MOST_MISSING} more"]
    return words


def _own_misses(outcome: Outcome) -> int:
    """Calls without a recorded answer: those of the judged request where it is known which they are, or else all."""
    at_the_border = sum(miss.to is not None for miss in outcome.misses)
    if outcome.events is None:
        # What went on to the border is a miss there, if it is one.
        passed = sum(miss.to is None and miss.policy == "pass" for miss in outcome.misses)
        return len(outcome.misses) - (passed if outcome.stubs is not None else 0)
    return at_the_border + sum(event.kind == EventKind.MISS for event in outcome.events)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _memory(recorded: Outcome, replayed: Outcome) -> Cause | None:
    """By whether the kernel killed it for want of memory: SIGKILL alone says nothing of who sent it, nor why."""
    if recorded.out_of_memory and replayed.out_of_memory:
        return Cause(evidence=["the kernel killed it for want of memory on both sides"])
    if recorded.out_of_memory:
        return Cause(difference="the kernel killed it for want of memory, in the branch it did not")
    if replayed.out_of_memory:
        return Cause(
            difference="in the branch the kernel killed it for want of memory, which is not what was recorded"
        )
    return None


def _faults(recorded: Outcome, replayed: Outcome) -> Cause | None:
    """By the fatal signal."""
    one, other = recorded.fault, replayed.fault
    if one is None:
        return None
    if other is None:
        return Cause(unseen=["how the process in the branch died was not seen"])
    if one.is_root is not other.is_root:
        which = ("the first process", "another process")
        return Cause(
            difference=f"{which[not one.is_root]} of the service died, in the branch {which[not other.is_root]} did"
        )
    if one.code != other.code or _is_null(one.address) is not _is_null(other.address):
        return Cause(difference=f"{_fault_words(one)} was recorded, {_fault_words(other)} came")
    if one.place is None or other.place is None:
        return Cause(unseen=["where the process died was not kept: there is no commit at the failure"])
    if one.place.instruction != other.place.instruction:
        return Cause(difference=f"{_fault_words(one)} was recorded, {_fault_words(other)} came")
    if one.callers is None or other.callers is None:
        return Cause(unseen=["which calls led to the signal was not kept"])
    if one.callers != other.callers:
        return Cause(unseen=[f"other calls led to the same instruction: {_calls_words(one, other)}"])
    by = f"by the same {_counted(len(one.callers))}, as far as they could be followed"
    return Cause(evidence=[f"the same signal at the same instruction, {by}: {_fault_words(one)}"])


def _calls_words(one: Fault, other: Fault) -> str:
    for left, right in zip_longest(one.callers or [], other.callers or []):
        if left != right:
            words = [f"{call:#x}" if call is not None else "none" for call in (left, right)]
            return f"{words[0]} was recorded, {words[1]} came"
    return "none differs"


def _is_null(address: int | None) -> bool | None:
    return None if address is None else address < _PAGE


def _fault_words(fault: Fault) -> str:
    words = f"signal {fault.signal}{f' ({fault.code})' if fault.code else ''}"
    words += f" at address {fault.address:#x}" if fault.address is not None else ""
    return words + (f" by instruction {fault.place.instruction:#x}" if fault.place is not None else "")


def _standing(recorded: Outcome, replayed: Outcome) -> Cause | None:
    """By where the threads stand that do not answer. None where that is not known of both."""
    if recorded.places is None or replayed.places is None:
        return None
    if not recorded.places:
        return Cause(unseen=["in the recording no thread stood elsewhere than before the request"])
    here = {(place.instruction, place.stack % _PAGE) for place in replayed.places if not place.runs}
    running = [place for place in replayed.places if place.runs]
    elsewhere = [place for place in recorded.places if not (_stands(place, here) or _runs_by(place, running))]
    found = len(recorded.places) - len(elsewhere)
    if found and all(_waits_alike(place, here) for place in elsewhere):
        elsewhere = []
    if elsewhere:
        return Cause(
            unseen=[
                f"{len(elsewhere)} of {len(recorded.places)} threads that did not answer stand elsewhere in the branch; "
                f"thread {elsewhere[0].thread} was at instruction {elsewhere[0].instruction:#x}"
            ]
        )
    return Cause(evidence=[f"{found} threads stand where they stood when it was recorded"])


def _stands(place: ThreadPlace, here: set[tuple[int, int]]) -> bool:
    """A thread in the branch stands there. A committed one may have been set back to its system call, of two bytes."""
    return any((place.instruction + back, place.stack % _PAGE) in here for back in (0, 2))


def _waits_alike(place: ThreadPlace, here: set[tuple[int, int]]) -> bool:
    """A thread in the branch is at the same instruction, at another depth of calls.

    It shows nothing by itself: many a wait ends in one instruction. Nor does it show that the thread stands elsewhere: an
    interpreter that has gone round its loop often enough calls the same function by fewer frames (CPython's adaptive one, PEP 659).
    """
    return any(place.instruction + back == instruction for instruction, _ in here for back in (0, 2))


def _runs_by(place: ThreadPlace, running: Sequence[ThreadPlace]) -> bool:
    """A thread in the branch that runs without end comes by there: it was found a few instructions away, as deep in calls."""
    return any(
        abs(place.instruction - one.instruction) <= _NEAR
        and (place.stack - one.stack + _DEPTH) % _PAGE <= 2 * _DEPTH
        for one in running
    )


def _exceptions(recorded: Outcome, replayed: Outcome) -> Cause | None:
    """By the recorder's own ``failure`` events. None where it was not there on both sides, or saw no exception."""
    if recorded.events is None or replayed.events is None:
        return None
    one, other = (
        [event.about for event in outcome.events or () if event.kind == EventKind.FAILURE]
        for outcome in (recorded, replayed)
    )
    if not one and not other:
        return None
    if not one or not other:
        there, here = (_type(one[-1]), "none") if one else ("none", _type(other[-1]))
        return Cause(difference=f"the exception inside: {there} was recorded, {here} came")
    prints = {about.get("fingerprint") for about in other}
    if one[-1].get("fingerprint") in prints:
        return Cause(evidence=[f"the same exception inside: {_type(one[-1])}, from the same frames"])
    if one[-1].get("type") == other[-1].get("type"):
        return Cause(difference=f"the exception inside: {_type(one[-1])} came from other frames")
    return Cause(difference=f"the exception inside: {_type(one[-1])} was recorded, {_type(other[-1])} came")


def _type(about: dict[str, object]) -> str:
    return str(about.get("type")).removeprefix("builtins.")


def _stacks(recorded: Outcome, replayed: Outcome, usual: UsualLog) -> Cause | None:
    """By stacks in the logs. None where neither side printed one that says anything."""
    one, other = _stacks_of(recorded, usual), _stacks_of(replayed, usual)
    if not one and not other:
        return None
    if not one or not other:
        which, stack = ("recorded", one[-1]) if one else ("replayed", other[-1])
        return Cause(unseen=[f"only the {which} side printed a stack: {short(stack.exception)}"])
    if _is_among(one[-1], other) and _is_among(other[-1], one):
        where = _frame(one[-1].frames[-1]) if one[-1].frames else "no frame"
        return Cause(evidence=[f"the same stack in the log: {short(one[-1].exception)} at {where}"])
    return Cause(difference=stack_difference(one[-1], other[-1]) or "another stack was printed last")


def _stacks_of(outcome: Outcome, usual: UsualLog) -> list[Stack]:
    found = find_stacks(outcome.log) or ([outcome.stack] if outcome.stack is not None else [])
    return [stack for stack in found if not _is_among(stack, usual.stacks)]


def _is_among(stack: Stack, others: Sequence[Stack]) -> bool:
    return any(stack_difference(stack, other) is None for other in others)


def stack_difference(recorded: Stack, replayed: Stack) -> str | None:
    """The first difference of two stacks in words: the type of the exception, then frames from outside in."""
    one, other = (plain_line(stack.exception.partition(":")[0]) for stack in (recorded, replayed))
    if one != other:
        return f"{recorded.exception!r} was recorded, {replayed.exception!r} came"
    for index, (left, right) in enumerate(zip_longest(recorded.frames, replayed.frames)):
        if left != right:
            return f"frame {index} of the stack: {_frame(left)} was recorded, {_frame(right)} came"
    return None


def _frame(frame: tuple[str, int, str] | None) -> str:
    if frame is None:
        return "nothing"
    return f"{frame[0]}:{frame[1]}{f' in {frame[2]}' if frame[2] else ''}"


def _last_words(recorded: Outcome, replayed: Outcome, usual: UsualLog) -> Cause:
    """By what was written last."""
    one, other = _own_lines(recorded, usual), _own_lines(replayed, usual)
    if not one and not other:
        return Cause(unseen=["neither side printed a stack or a line that names the cause"])
    if not one or not other:
        which, line = ("recorded", one[-1]) if one else ("replayed", other[-1])
        return Cause(unseen=[f"only the {which} side wrote to its log; its last line: {short(line)}"])
    recorded_blocks, came_blocks = _blocks(one), _blocks(other)
    last, came = recorded_blocks[-1], came_blocks[-1]
    if any(_are_same(last, block) for block in came_blocks) and any(
        _are_same(block, came) for block in recorded_blocks
    ):
        return Cause(evidence=[f"the same last line in the log: {short(last[0])}"])
    here, there = next(
        (pair for pair in zip_longest(last, came, fillvalue="nothing") if not is_same_line(*pair)),
        (last[0], came[0]),
    )
    return Cause(unseen=[f"the log's last line: {short(here)} was recorded, {short(there)} came"])


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Lines with those that are indented below them: what is said once. The end of one alone, as of a stack, is said by many."""
    found: list[list[str]] = []
    for line in lines:
        if found and line[:1].isspace():
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _are_same(recorded: Sequence[str], came: Sequence[str]) -> bool:
    return len(recorded) == len(came) and all(map(is_same_line, recorded, came))


def _own_lines(outcome: Outcome, usual: UsualLog) -> list[str]:
    """Lines that can tell a cause: not those of an access log, which name the status of the answer, nor what is always written."""
    lines = [
        line
        for line in outcome.log
        if line.strip() and plain_line(line) not in usual.lines and _OF_CONNECTION.search(line) is None
    ]
    if outcome.status is None:
        return lines
    phrase = next((one.phrase for one in HTTPStatus if one == outcome.status), str(outcome.status))
    status = re.compile(rf"(?<![\w.]){outcome.status}(?![\w.])|{re.escape(phrase)}", re.IGNORECASE)
    return [line for line in lines if status.search(line) is None]


def _calls(recorded: Outcome, replayed: Outcome) -> list[str]:
    stubs = replayed.stubs
    if (
        stubs is not None
        and (given := stubs.given + stubs.simulated)
        and not (stubs.missed or stubs.left or stubs.strangers)
    ):
        return [f"{_counted(given)} at the network, each with the recorded answer"]
    if recorded.events is None or replayed.events is None:
        return []
    asked = [event for event in recorded.events if _is_answered(event)]
    if not asked:
        return []
    return [f"{_counted(len(asked))} of the request, each with the recorded answer"]


def _counted(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls} calls"


def _is_answered(event: InsideEvent) -> bool:
    return is_call(event) and event.kind != EventKind.MISS


def is_same_line(recorded: str, came: str) -> bool:
    """Two lines of a log are equal but for numbers, addresses and placeholders of secrets."""
    return plain_line(recorded) == plain_line(came) or is_same_text(recorded, came)
