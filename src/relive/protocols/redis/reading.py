"""The calls of a dialogue that is RESP.

A command is a call, ``asked`` being {"server", "database", "command"}. MULTI with all that follows to EXEC or DISCARD is one call,
{"server", "database", "commands", "transaction": true} (with "discarded": true after DISCARD), whose answer is the list of all
that was said. What the server says unasked (messages of subscriptions, invalidations, MONITOR) is a call with an empty question,
``asked`` being {"server", "database", "message"}.

``extra``: ``push`` (bool: said unasked), ``version`` (int: of RESP), ``replies`` (list of int: for each command of a transaction
the end of its answer, from the call's first byte down), ``words`` (list of lists of bytes: the commands, MULTI and EXEC
included), ``housekeeping`` (bool: about the connection only), ``cut`` (bool: the question did not end).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from relive.protocols.call import Call, CallEnd
from relive.protocols.opaque import rest_as_bytes
from relive.protocols.redis.commands import MESSAGES, encoded_answer, encoded_command, name_of
from relive.protocols.redis.housekeeping import is_housekeeping
from relive.protocols.redis.resp import Commands, RedisCommand, Said, Values, Whole
from relive.protocols.redis.state import RedisState
from relive.protocols.timing import Timing
from relive.recording.dialogues import Dialogue, Way
from relive.recording.events import EventKind

__all__ = ["asked_of", "read_calls"]

_KIND = EventKind.REDIS_COMMAND


@dataclass(slots=True)
class _Draft:
    """A call that is being read.

    Attributes:
        expected: values that answer it; None while its transaction is open.
    """

    words: list[list[bytes]]
    up_begin: int
    up_end: int
    database: int
    version: int
    expected: int | None
    said: list[Said] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    down_begin: int = -1
    down_end: int = -1
    is_push: bool = False
    is_transaction: bool = False

    @property
    def is_whole(self) -> bool:
        return self.expected is not None and len(self.said) >= self.expected


def read_calls(dialogue: Dialogue) -> list[Call]:
    """All calls, see ``Protocol.calls``."""
    return _Reading(dialogue).calls()


def asked_of(
    server: str, database: int, commands: list[list[bytes]], *, is_transaction: bool = False
) -> dict[str, Any]:
    """What a command or a transaction (from MULTI on) is found by."""
    if not is_transaction:
        return {"server": server, "database": database, "command": encoded_command(commands[0])}
    inner = [encoded_command(words) for words in commands[1:] if name_of(words) not in ("EXEC", "DISCARD")]
    asked = {"server": server, "database": database, "commands": inner, "transaction": True}
    if name_of(commands[-1]) == "DISCARD":
        asked["discarded"] = True
    return asked


class _Reading:
    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._timing = Timing(dialogue)
        self._server = f"{dialogue.to[0]}:{dialogue.to[1]}"
        self._commands, self._values = Commands(), Values()
        self._state = RedisState()
        self._up = self._down = 0
        # In the order in which they were answered, or asked while they are not.
        self._drafts: list[_Draft] = []
        self._unanswered: deque[_Draft] = deque()
        self._transaction: _Draft | None = None
        self._answered_up = 0  # end of the last question that was answered

    def calls(self) -> list[Call]:
        for piece in self._dialogue.pieces:
            if piece.way is Way.UP:
                for asked in self._commands.feed(piece.data):
                    self._read_command(asked)
            else:
                for whole in self._values.feed(piece.data):
                    self._read_value(whole)
            if self._commands.is_broken or self._values.is_broken:
                break
        return self._made()

    def _read_command(self, asked: RedisCommand) -> None:
        begin, self._up = self._up, self._up + asked.size
        state, draft = self._state, self._transaction
        if draft is not None:
            draft.words.append(asked.words)
            draft.up_end = self._up
            if name_of(asked.words) in ("EXEC", "DISCARD"):
                draft.expected, self._transaction = len(draft.words), None
            if name_of(asked.words) == "EXEC":
                for words in draft.words[1:-1]:
                    self._state.apply_command(words)
            return
        before = state.database, state.version
        expected = state.apply_command(asked.words)
        draft = _Draft([asked.words], begin, self._up, *before, expected)
        if name_of(asked.words) == "MULTI":
            draft.expected, draft.is_transaction, self._transaction = None, True, draft
        if expected:
            self._unanswered.append(draft)
        self._drafts.append(draft)

    def _read_value(self, whole: Whole) -> None:
        begin, self._down = self._down, self._down + whole.size
        draft = self._unanswered[0] if self._unanswered else None
        if draft is None or self._is_unasked(whole.said, draft):
            if draft is not None and draft.said:
                draft.down_end = self._down  # said in the middle of an answer, and given with that again
                draft.replies[-1] = self._down - draft.down_begin
            else:
                self._read_push(whole.said, begin)
            return
        if not draft.said:
            draft.down_begin = begin
        draft.said.append(whole.said)
        draft.down_end = self._down
        draft.replies.append(self._down - draft.down_begin)
        if draft.is_whole:
            self._unanswered.popleft()
            self._answered_up = draft.up_end

    def _is_unasked(self, said: Said, draft: _Draft) -> bool:
        kind, content = said
        first = content[0][1] if isinstance(content, list) and content else None
        if kind == b">":
            return name_of(draft.words[0]).lower().encode() != first
        if kind == b"*" and isinstance(first, bytes) and first in MESSAGES:
            return self._state.listens
        return self._state.monitors and kind == b"+" and name_of(draft.words[0]) != "MONITOR"

    def _read_push(self, said: Said, begin: int) -> None:
        place = self._answered_up
        push = _Draft([], place, place, self._state.database, self._state.version, 1, [said], is_push=True)
        push.down_begin, push.down_end = begin, self._down
        behind = len(self._unanswered)  # it comes before their answers
        at = self._drafts.index(self._unanswered[0]) if behind else len(self._drafts)
        self._drafts.insert(at, push)

    def _made(self) -> list[Call]:
        calls: list[Call] = []
        place = 0
        for draft in self._drafts:
            if draft.down_begin < 0:
                draft.down_begin = draft.down_end = place
            place = draft.down_end
            calls.append(self._call(len(calls), draft))
        if self._commands.is_broken or self._values.is_broken:
            down = max([0, *(draft.down_end for draft in self._drafts)])
            return calls + rest_as_bytes(self._dialogue, self._timing, self._up, down, len(calls))
        self._add_rests(calls)
        return calls

    def _add_rests(self, calls: list[Call]) -> None:
        """A question that was cut short, and an answer."""
        for index, call in enumerate(calls):
            if call.end is not CallEnd.ANSWERED and self._values.held:
                calls[index] = self._with_rest(call)
                break
        if self._commands.held and not self._commands.is_broken:
            calls += [self._cut_question(len(calls))]

    def _with_rest(self, call: Call) -> Call:
        """The first call without an answer gets the bytes of one that did not become whole."""
        fields = {name: getattr(call, name) for name in Call.__slots__}
        end = len(self._timing.down)
        return Call(
            **{
                **fields,
                "down": (call.down[0], end),
                "pieces": self._timing.pieces(call.up[1], call.down[0], end),
                "end_after_ns": self._timing.end_after_ns(call.up[1], end),
            }
        )

    def _cut_question(self, index: int) -> Call:
        held = len(self._timing.up) - self._commands.held
        found = rest_as_bytes(self._dialogue, self._timing, held, len(self._timing.down), index)
        fields = {name: getattr(found[0], name) for name in Call.__slots__}
        return Call(**{**fields, "extra": {**found[0].extra, "cut": True}})

    def _call(self, index: int, draft: _Draft) -> Call:
        timing = self._timing
        how, when = timing.end()
        if draft.is_push:
            asked = {
                "server": self._server,
                "database": draft.database,
                "message": encoded_answer(draft.said[0]),
            }
        else:
            asked = asked_of(self._server, draft.database, draft.words, is_transaction=draft.is_transaction)
        many = draft.is_transaction or (draft.expected or 0) > 1
        said = [encoded_answer(one) for one in draft.said]
        answer: Any = None if draft.is_push or not said else said if many else said[0]
        begins = timing.answered_ns(draft.down_begin) if draft.is_push else timing.asked_ns(draft.up_begin)
        return Call(
            kind=_KIND,
            asked=asked,
            answer=answer,
            end=CallEnd.ANSWERED if draft.is_whole else how,
            dialogue=self._dialogue.number,
            index=index,
            to=self._dialogue.to,
            asked_mono_ns=begins,
            ended_mono_ns=timing.answered_ns(draft.down_end - 1) if draft.is_whole and draft.said else when,
            up=(draft.up_begin, draft.up_end),
            down=(draft.down_begin, draft.down_end),
            pieces=timing.pieces(draft.up_end, draft.down_begin, draft.down_end),
            end_after_ns=0 if draft.is_whole else timing.end_after_ns(draft.up_end, draft.down_end),
            extra={
                "push": draft.is_push,
                "version": draft.version,
                "replies": draft.replies,
                "words": draft.words,
                "housekeeping": bool(draft.words) and is_housekeeping(draft.words[0]),
                "cut": False,
            },
        )
