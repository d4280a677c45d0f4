"""The calls of a recorded dialogue: one for each query cycle or Execute, with its answer in parts.

Besides queries: ``CONNECT`` (opening the connection, with ``parameters`` {"user": NAME}), ``CANCEL`` (a connection made to cancel a
query), and calls of functions by the "fast path" (``function``: its oid). What makes no sense is a last call of kind DIALOGUE_UP.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.postgres.answer_parts import Parts, TrailingMessages
from relive.protocols.postgres.answers import encoded_answer, encoded_opening, tags_of
from relive.protocols.postgres.dialogue_steps import DialogueStep, Transcript, read_steps
from relive.protocols.postgres.framing import Message
from relive.protocols.postgres.messages import (
    Column,
    read_oids,
    read_query,
    read_row_description,
    read_startup,
)
from relive.protocols.postgres.statement_state import Role, StatementState, Unit, asked_of, copied_of, learn
from relive.recording.dialogues import Dialogue, DirectionEnd, Way
from relive.recording.events import EventKind

__all__ = ["Decoded", "asked_to_cancel", "asked_to_connect", "asked_to_function", "decode_dialogue"]

_EXTENDED = frozenset("PBDEC")
_Columns = tuple[Column, ...]


def asked_to_connect(server: str, body: bytes) -> dict[str, Any]:
    """``asked`` of a StartupMessage."""
    startup = read_startup(body)
    parameters = startup[1] if startup is not None else {}
    user = parameters.get("user", "")
    return {**asked_of(server, parameters.get("database") or user, "CONNECT"), "parameters": {"user": user}}


def asked_to_cancel(server: str) -> dict[str, Any]:
    """``asked`` of a CancelRequest: which query is meant cannot be compared, since process numbers differ."""
    return asked_of(server, "", "CANCEL")


def asked_to_function(server: str, database: str, body: bytes) -> dict[str, Any]:
    """``asked`` of a FunctionCall."""
    oid = int.from_bytes(body[:4], "big")
    return {
        **asked_of(server, database, f"<function {oid}>"),
        "arguments": base64.b64encode(body[4:]).decode(),
    }


@dataclass(slots=True)
class _Draft:
    """A call on its way.

    Attributes:
        steps: indices, by role; more: of what it was given besides (copied data, passwords).
        boundary: index of the step with which the client began to wait.
    """

    asked: dict[str, Any]
    steps: dict[Role, int]
    unit: Unit | None = None
    more: list[int] = field(default_factory=list)
    boundary: int = 0
    before: str = ""
    after: str = ""
    trail: list[Timed] = field(default_factory=list)
    is_connect: bool = False
    no_answer: bool = False


class Decoded:
    """A dialogue as calls.

    Args:
        steps: how many of its steps are looked at, to find the statements and state of the connection then; no calls are made.
            Without it all are.

    Attributes:
        statements, database, state: of the connection after those steps; ``state`` is that of ReadyForQuery, "" before the first.
        calls: in the order in which they were asked.
        call_of: index of the call that a step belongs to, by the step's index.
    """

    def __init__(self, transcript: Transcript, steps: int | None = None) -> None:
        self.statements = StatementState()
        self.database = ""
        self.state = ""
        self.call_of: dict[int, int] = {}
        self._transcript = transcript
        self._server = f"{transcript.dialogue.to[0]}:{transcript.dialogue.to[1]}"
        self._steps = transcript.steps[:steps]
        self._drafts: list[_Draft] = []
        self._cycle: list[_Draft] = []  # since the last ReadyForQuery
        self._batch: list[int] = []
        for index in range(len(self._steps)):
            self._add_step(index)
        self._end_batch(len(self._steps) - 1)
        self._end_cycle(None)
        self.calls: list[Call] = []
        if steps is None:
            self.calls += [self._call(number, draft) for number, draft in enumerate(self._drafts)]
            self._add_rest()

    # -- steps -----------------------------------------------------------------------------------------------------------

    def _add_step(self, index: int) -> None:
        step = self._steps[index]
        if step.content:
            return
        match step.kind:
            case kind if kind in _EXTENDED:
                self._batch.append(index)
            case "H":
                self._end_batch(index)
            case "S":
                self._end_batch(index)
                self._end_cycle(index)
            case "Q":
                self._alone(index, asked_of(self._server, self.database, read_query(step.message.body)))
            case "F":
                self._alone(index, asked_to_function(self._server, self.database, step.message.body))
            case "startup":
                asked = asked_to_connect(self._server, step.message.body)
                self.database = asked["database"]
                self._alone(index, asked).is_connect = True
            case "cancel":
                self._alone(index, asked_to_cancel(self._server)).no_answer = True
            case "p" if self._drafts and self._drafts[-1].is_connect:
                self._drafts[-1].more.append(index)
                self.call_of[index] = len(self._drafts) - 1
                self._ready(step)
        self._add_trail(step)

    def _alone(self, index: int, asked: dict[str, Any]) -> _Draft:
        """A call of one message."""
        self._end_batch(index)
        self._end_cycle(None)
        draft = _Draft(asked, {Role.EXECUTE: index}, boundary=index, before=self.state)
        self._add(draft)
        self._copied(draft, index)
        self._ready(self._steps[index])
        draft.after = self.state
        return draft

    def _ready(self, step: DialogueStep) -> None:
        for message in step.answer:
            if message.kind == "Z":
                self.state = message.body[:1].decode("latin-1")

    def _add(self, draft: _Draft) -> None:
        self._drafts.append(draft)
        for index in draft.steps.values():
            self.call_of[index] = len(self._drafts) - 1

    def _copied(self, draft: _Draft, index: int) -> None:
        """What a COPY was given is part of what was asked."""
        if self._steps[index].copy_at is None:
            return
        data: list[bytes] = []
        for number in range(index + 1, len(self._steps)):
            step = self._steps[number]
            if not step.content:
                break
            draft.more.append(number)
            self.call_of[number] = self.call_of[index]
            if step.kind == "d":
                data.append(step.message.body)
            elif step.kind == "f":
                draft.asked["copy_failed"] = True
        draft.asked["copied"] = copied_of(b"".join(data))

    def _end_batch(self, boundary: int) -> None:
        if not self._batch:
            return
        indices, self._batch = self._batch, []
        units, _ = self.statements.read([self._steps[index].message for index in indices])
        for unit in units:
            steps = {role: indices[place] for place, role in unit.roles}
            asked = asked_of(self._server, self.database, unit.statement.text, unit)
            if all(self._steps[index].skipped for index in steps.values()):
                continue
            draft = _Draft(asked, steps, unit, boundary=boundary, before=self.state)
            self._add(draft)
            self._cycle.append(draft)
            if Role.EXECUTE in steps:
                self._copied(draft, steps[Role.EXECUTE])
        for unit in units:
            for place, role in unit.roles:
                learn(unit, role, self._steps[indices[place]].answer)

    def _end_cycle(self, sync: int | None) -> None:
        cycle, self._cycle = self._cycle, []
        if sync is None:
            return
        self._ready(self._steps[sync])
        if not cycle:
            return
        self.call_of[sync] = self.call_of[next(iter(cycle[-1].steps.values()))]
        cycle[-1].steps[Role.SYNC] = sync
        if len(cycle) == 1:
            cycle[0].after = self.state

    def _add_trail(self, step: DialogueStep) -> None:
        if self._drafts and step.end > step.settled:
            since = self._transcript.asked_ns(step)
            self._drafts[-1].trail += self._transcript.chunks(step.settled, step.end, since)

    # -- calls -------------------------------------------------------------------------------------------------------------

    def _call(self, number: int, draft: _Draft) -> Call:
        transcript = self._transcript
        steps = [self._steps[index] for index in sorted((*draft.steps.values(), *draft.more))]
        if draft.is_connect:
            parts, pieces = self._opening(steps)
        else:
            parts, pieces = self._parts(draft)
        end, ended_ns, end_after = self._end(draft, parts, steps)
        if end is CallEnd.ANSWERED:
            parts = replace(parts, trail=self._trail(number, draft))
        messages = [message for step in steps for message in step.answer if message.begin < step.settled]
        answered = bool(messages) or (end is CallEnd.ANSWERED and not draft.no_answer)
        answer = (
            (encoded_opening(messages) if draft.is_connect else encoded_answer(messages, _columns_of(draft)))
            if answered
            else None
        )
        first, last = steps[0], steps[-1]
        return Call(
            kind=EventKind.QUERY,
            asked=draft.asked,
            answer=answer,
            end=end,
            dialogue=transcript.dialogue.number,
            index=number,
            to=transcript.dialogue.to,
            asked_mono_ns=transcript.piece(Way.UP, first.message.begin).mono_ns,
            ended_mono_ns=ended_ns,
            up=(first.message.begin, last.message.end),
            down=(min(step.begin for step in steps), max(step.settled for step in steps)),
            pieces=pieces,
            end_after_ns=end_after,
            extra={"parts": parts},
        )

    def _since(self, draft: _Draft, step: DialogueStep) -> int:
        return max(self._transcript.asked_ns(step), self._transcript.asked_ns(self._steps[draft.boundary]))

    def _parts(self, draft: _Draft) -> tuple[Parts, tuple[Timed, ...]]:
        transcript = self._transcript
        answers: dict[Role, tuple[Timed, ...]] = {}
        pieces: list[Timed] = []
        failed = stops = ready_at = None
        copied = None
        messages: list[Message] = []
        for role, index in sorted(draft.steps.items()):
            step = self._steps[index]
            if step.skipped and not step.answer:
                continue
            since = self._since(draft, step)
            if step.copy_at is not None and draft.more:
                copied = step.copy_at - step.begin
            begin, ready = step.begin, _ready_of(step)
            if role is Role.EXECUTE and ready is not None:  # a Query: ReadyForQuery is kept apart
                answers[role] = transcript.chunks(begin, ready.begin, since)
                answers[Role.SYNC] = transcript.chunks(ready.begin, step.settled, since)
                ready_at = 5
                pieces += transcript.chunks(begin, step.settled, since)
            else:
                answers[role] = transcript.chunks(begin, step.settled, since)
                pieces += answers[role]
                if ready is not None:
                    ready_at = ready.begin + 5 - begin
            if copied is not None and role is Role.EXECUTE:
                answers[role] = self._copy_chunks(draft, step, ready.begin if ready else step.settled)
            if failed is None and step.failed and not (role is Role.EXECUTE and draft.unit is None):
                failed = role
            if stops is None and not step.whole:
                stops = role
            messages += [message for message in step.answer if message.begin < step.settled]
        if draft.unit is None and any(message.kind == "E" for message in messages):
            failed = Role.EXECUTE
        columns, types = _described(messages, draft)
        parts = Parts(
            answers,
            copied,
            failed,
            None if draft.no_answer else stops,
            draft.before if draft.after else "",
            draft.after,
            tags_of(message for message in messages),
            columns,
            types,
            draft.unit is None,
            ready_at,
            self._is_cut(stops),
        )
        return parts, tuple(pieces)

    def _copy_chunks(self, draft: _Draft, step: DialogueStep, end: int) -> tuple[Timed, ...]:
        """The first part, up to the place where the server waits for data, and the second, since the data had come."""
        assert step.copy_at is not None
        first = self._transcript.chunks(step.begin, step.copy_at, self._since(draft, step))
        given = self._transcript.asked_ns(self._steps[draft.more[-1]])
        return (*first, *self._transcript.chunks(step.copy_at, end, given))

    def _opening(self, steps: Sequence[DialogueStep]) -> tuple[Parts, tuple[Timed, ...]]:
        """Of connecting: what follows the authentication, from AuthenticationOk on; or the error that ended it."""
        transcript = self._transcript
        last = steps[-1]
        begin = next(
            (
                message.begin
                for step in steps
                for message in step.answer
                if (message.kind == "R" and message.body == b"\0\0\0\0") or message.kind == "E"
            ),
            last.settled,
        )
        pieces = tuple(
            chunk
            for step in steps
            for chunk in transcript.chunks(step.begin, step.settled, transcript.asked_ns(step))
        )
        answer = transcript.chunks(begin, last.settled, transcript.asked_ns(last))
        is_open = any(message.kind == "Z" for message in last.answer)
        failed = Role.EXECUTE if last.failed else None
        stops = None if is_open else Role.EXECUTE
        return Parts({Role.EXECUTE: answer}, failed=failed, stops=stops, cut=self._is_cut(stops)), pieces

    def _is_cut(self, stops: Role | None) -> bool:
        down = self._transcript.dialogue.endings.get(Way.DOWN)
        return stops is not None and down is not None and down.cut > 0

    def _ending(self) -> tuple[Way, DirectionEnd] | None:
        """What ended the connection first; None where that is not known."""
        endings = self._transcript.dialogue.endings
        found = min(endings.items(), key=lambda one: one[1].seq, default=None)
        return None if found is None or found[1].how == "lost" else found

    def _end(
        self, draft: _Draft, parts: Parts, steps: Sequence[DialogueStep]
    ) -> tuple[CallEnd, int | None, int]:
        transcript = self._transcript
        asked = max(transcript.asked_ns(step) for step in steps)
        ends = [
            transcript.piece(Way.DOWN, step.settled - 1).mono_ns
            for step in steps
            if step.settled > step.begin
        ]
        last = max((asked, *ends))
        if parts.stops is None and not draft.no_answer:
            return CallEnd.ANSWERED, last, 0
        ending = self._ending()
        if ending is None:
            return CallEnd.OPEN, None, 0
        way, how = ending
        after = max(0, how.mono_ns - last)
        if way is Way.UP:
            return CallEnd.GIVEN_UP, how.mono_ns, after
        return (CallEnd.RESET if how.how == "reset" else CallEnd.CLOSED), how.mono_ns, after

    def _trail(self, number: int, draft: _Draft) -> TrailingMessages:
        """What came unasked after a call that was answered, and whether the server then ended the connection."""
        said = tuple(draft.trail)
        ending = self._ending() if self._transcript.broken is None else None
        if ending is None or ending[0] is not Way.DOWN:
            return TrailingMessages(said)
        end = ending[1]
        if number + 1 < len(self._drafts):  # something was asked later: after the end, or before it
            following = self._steps[min(self._drafts[number + 1].steps.values())]
            if self._transcript.piece(Way.UP, following.message.begin).seq < end.seq:
                return TrailingMessages(said)
        elif self._steps[-1].kind == "X":
            return TrailingMessages(said)
        down = self._transcript.dialogue.of(Way.DOWN)
        asked = self._transcript.asked_ns(self._steps[draft.boundary])
        return TrailingMessages(
            said, end.how, max(0, end.mono_ns - max(down[-1].mono_ns if down else 0, asked))
        )

    def _add_rest(self) -> None:
        transcript, dialogue = self._transcript, self._transcript.dialogue
        if transcript.broken is None:
            return
        up, down = transcript.rest
        sent, got = dialogue.text(Way.UP, up), dialogue.text(Way.DOWN, down)
        if not sent and not got:
            return
        since = (
            transcript.piece(Way.UP, max(0, up - 1)).mono_ns
            if dialogue.of(Way.UP)
            else dialogue.opened_mono_ns
        )
        self.calls.append(
            Call(
                kind=EventKind.DIALOGUE_UP,
                asked={"system": "postgresql", "bytes": copied_of(sent)},
                answer={"bytes": copied_of(got), "why": transcript.broken} if got else None,
                end=CallEnd.ANSWERED if got else CallEnd.OPEN,
                dialogue=dialogue.number,
                index=len(self.calls),
                to=dialogue.to,
                asked_mono_ns=since,
                ended_mono_ns=dialogue.pieces[-1].mono_ns if got else None,
                up=(up, up + len(sent)),
                down=(down, down + len(got)),
                pieces=transcript.chunks(down, down + len(got), since),
            )
        )


def _ready_of(step: DialogueStep) -> Message | None:
    return next((message for message in step.answer if message.kind == "Z"), None)


def _columns_of(draft: _Draft) -> _Columns | None:
    """Of the rows of a unit, where they were described before it."""
    unit = draft.unit
    if unit is None or unit.portal is None:
        return None
    if unit.portal.columns is not None:
        return unit.portal.columns
    return _formatted(unit.statement.columns, unit.portal.bind.result_formats)


def _formatted(columns: _Columns | None, formats: tuple[int, ...]) -> _Columns | None:
    if columns is None:
        return None
    every = formats if len(formats) == len(columns) else (formats[:1] or (0,)) * len(columns)
    return tuple(replace(column, format=form) for column, form in zip(columns, every, strict=True))


def _described(messages: Iterable[Message], draft: _Draft) -> tuple[_Columns | None, tuple[int, ...] | None]:
    """(columns, types of parameters) as far as this call shows them, or what its connection had been told before."""
    columns = types = None
    for message in messages:
        if message.kind == "T" and columns is None:
            columns = read_row_description(message.body)
        elif message.kind == "n" and columns is None:
            columns = ()
        elif message.kind == "t" and types is None:
            types = read_oids(message.body)
    unit = draft.unit
    if unit is not None:
        columns = unit.statement.columns if columns is None else columns
        types = unit.statement.types or None if types is None else types
    return columns, types


def decode_dialogue(dialogue: Dialogue) -> tuple[Transcript, Decoded]:
    """Never raises for what was said."""
    transcript = read_steps(dialogue)
    return transcript, Decoded(transcript)
