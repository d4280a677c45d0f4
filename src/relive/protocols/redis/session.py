"""A connection on which the service gives commands and gets recorded answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.redis.commands import encoded_command, name_of
from relive.protocols.redis.effects import is_read
from relive.protocols.redis.housekeeping import housekeeping_answer, is_housekeeping
from relive.protocols.redis.reading import asked_of
from relive.protocols.redis.resp import Commands, Said, Values, encode
from relive.protocols.redis.simulation import Simulation
from relive.protocols.redis.state import RedisState
from relive.protocols.resuming import standing
from relive.protocols.session import Act, Close, Reset, Resume, Send, Session
from relive.protocols.timing import Timing, ending_acts, rest_of, sends
from relive.recording.events import EventKind

__all__ = ["RedisSession"]

_KIND = EventKind.REDIS_COMMAND
_ENDS = ("EXEC", "DISCARD")


@dataclass(slots=True)
class _Transaction:
    """MULTI was said.

    Attributes:
        call: the recorded one that began in the same way, None when there is none.
        given: bytes of its answer that the service has already.
    """

    words: list[list[bytes]] = field(default_factory=list)
    call: Call | None = None
    given: int = 0


class RedisSession(Session):
    """One connection.

    Args:
        resets: a miss breaks the connection, instead of being answered with an error.
        stand: None: nothing is simulated.
    """

    def __init__(
        self, pool: Pool, number: int, to: tuple[str, int], *, resets: bool, stand: Simulation | None
    ) -> None:
        self._pool = pool
        self._number = number
        self._to = to
        self._server = f"{to[0]}:{to[1]}"
        self._resets = resets
        self._stand = stand
        self._commands = Commands()
        self._state = RedisState()
        self._transaction: _Transaction | None = None
        self._dialogue: int | None = None  # number of the recorded connection that this one follows
        self._half: Call | None = None  # of that, the call that is being asked when the session begins
        self._given = 0  # bytes of its answer that the service has already
        self._is_mute = False  # a command was never answered: nothing behind it can be
        self._is_over = False

    def feed(self, data: bytes) -> list[Act]:
        acts: list[Act] = []
        for asked in self._commands.feed(data):
            if self._is_over:
                break
            acts += self._handle(asked.words)
        if self._commands.is_broken and not self._is_over:
            self._is_over = True
            acts += [Send(b"-ERR Protocol error\r\n"), Close()]
        return acts

    def hang_up(self) -> list[Act]:
        return []

    def carry_on(self, calls: list[Call], where: Resume) -> list[Act]:
        """Go on at a place of the recorded dialogue that has these calls."""
        self._dialogue = where.dialogue.number
        stood = standing(calls, where, self._pool, self._finish)
        for call in stood.past:
            if not call.asked.get("discarded"):
                for words in call.extra.get("words", ()):
                    self._state.apply_command(words)
        if stood.half is not None and stood.half.kind is _KIND:
            asked = Timing(where.dialogue).up[stood.half.up[0] : where.up]
            self._half, self._given = stood.half, stood.given
            return stood.acts + self.feed(asked)
        return stood.acts

    # -- commands -----------------------------------------------------------------------------------------------------

    def _handle(self, words: list[bytes]) -> list[Act]:
        if self._transaction is not None:
            return self._in_transaction(self._transaction, words)
        if name_of(words) == "MULTI":
            self._transaction = _Transaction()
            if self._half is not None:
                self._transaction.call, self._transaction.given = self._half, self._given
                self._half = None
            return self._in_transaction(self._transaction, words)
        database = self._state.database
        replies = self._state.apply_command(words)
        asked = asked_of(self._server, database, [words])
        half, self._half = self._half, None
        if half is not None and self._is_same(half, asked):
            return self._play(self._pool.give(half, connection=self._number).call, words)
        return self._single(words, asked, database, replies)

    def _single(self, words: list[bytes], asked: dict[str, Any], database: int, replies: int) -> list[Act]:
        own = is_housekeeping(words) or is_read(words)
        found = self._pool.find(_KIND, asked, connection=self._number, dialogue=self._dialogue, again=own)
        if found is None:
            said = housekeeping_answer(words, self._state, self._number)
            if said is not None:
                return self._say(said) if replies else []
            worked = self._worked_out(asked, database, [words])
            if worked is not None:
                return worked
            found = self._pool.claim(_KIND, asked, connection=self._number)
        if found.call is None:
            return self._miss(found) if replies or self._resets else []
        return self._play(found.call, words)

    def _worked_out(
        self,
        asked: dict[str, Any],
        database: int,
        commands: list[list[bytes]],
        *,
        is_transaction: bool = False,
    ) -> list[Act] | None:
        """What a simulated server says, if there is one and it can."""
        if self._stand is None:
            return None
        worked = self._stand.run(self._pool, self._to, database, commands, is_transaction=is_transaction)
        if worked is None:
            return None
        self._pool.claim(_KIND, asked, connection=self._number, simulated=True)
        if worked.after_ns is None:
            self._is_mute = True
        said = b"".join(encode(_mapped(one, commands[-1]), self._state.version) for one in worked.said)
        return [] if self._is_mute else [Send(said, worked.after_ns or 0)]

    def _in_transaction(self, transaction: _Transaction, words: list[bytes]) -> list[Act]:
        transaction.words.append(words)
        if name_of(words) in _ENDS:
            self._transaction = None
            return self._ends_transaction(transaction)
        at = len(transaction.words) - 1
        if transaction.call is None or not _begins_as(transaction.call, transaction.words):
            fitting = (call for call in self._candidates() if _begins_as(call, transaction.words))
            transaction.call = next(fitting, None)
        if transaction.call is not None and at < len(transaction.call.extra["replies"]):
            return self._part(transaction, transaction.call, at)
        if transaction.call is not None and transaction.call.end is not CallEnd.ANSWERED:
            return self._finish(transaction.call)
        return self._say(b"+QUEUED\r\n" if at else b"+OK\r\n")

    def _candidates(self) -> list[Call]:
        known = [call for call in self._pool.waiting(_KIND) if call.asked.get("transaction")]
        return sorted(known, key=lambda call: call.dialogue != self._dialogue)

    def _ends_transaction(self, transaction: _Transaction) -> list[Act]:
        database = self._state.database
        asked = asked_of(self._server, database, transaction.words, is_transaction=True)
        if name_of(transaction.words[-1]) == "EXEC":
            for words in transaction.words[1:-1]:
                self._state.apply_command(words)
        call = transaction.call
        if call is not None and call.dialogue == self._dialogue and self._is_same(call, asked):
            self._pool.give(call, connection=self._number)
        elif name_of(transaction.words[-1]) == "DISCARD" and not self._pool.has(_KIND, asked):
            return self._say(b"+OK\r\n")
        else:
            if not self._pool.has(_KIND, asked) and len(transaction.words) > 2:
                worked = self._worked_out(asked, database, transaction.words[1:-1], is_transaction=True)
                if worked is not None:
                    return worked
            found = self._pool.claim(_KIND, asked, connection=self._number, dialogue=self._dialogue)
            if found.call is None:
                return self._miss(found)
            if call is None or call.index != found.call.index or call.dialogue != found.call.dialogue:
                call, transaction.given = found.call, 0
        assert call is not None
        if self._stand is not None:
            self._stand.note(call)
        at = len(transaction.words) - 1
        if at >= len(call.extra["replies"]):
            return self._rest(transaction, call)
        return [*self._part(transaction, call, at), *self._pushes(call)]

    def _part(self, transaction: _Transaction, call: Call, at: int) -> list[Act]:
        """The answer to one command of a transaction."""
        replies = call.extra["replies"]
        begin, end = (replies[at - 1] if at else 0), replies[at]
        begin = max(begin, transaction.given)
        return self._given_again(call, _between(call.pieces, begin, end)) if begin < end else []

    def _rest(self, transaction: _Transaction, call: Call) -> list[Act]:
        """EXEC was not answered, or not wholly: what came of it, and how that ended."""
        replies = call.extra["replies"]
        begin = max(replies[-1] if replies else 0, transaction.given)
        return [*self._given_again(call, rest_of(call.pieces, begin)), *self._finish(call)]

    def _is_same(self, call: Call, asked: dict[str, Any]) -> bool:
        return call.kind is _KIND and self._pool.masked(call.asked, _KIND) == self._pool.masked(asked, _KIND)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _play(self, call: Call | None, words: list[bytes]) -> list[Act]:
        assert call is not None
        if self._stand is not None:
            self._stand.note(call)
        acts = [*self._given_again(call, call.pieces, words), *self._finish(call)]
        if name_of(words) == "QUIT" and not self._is_over:
            self._is_over = True
            acts.append(Close())
        return acts + self._pushes(call)

    def _pushes(self, call: Call) -> list[Act]:
        """What the server said unasked after a call, before it answered the next."""
        acts: list[Act] = []
        if not self._state.listens and call.dialogue != self._dialogue:
            return acts
        following = self._pool.after(call)
        while following is not None and following.extra.get("push") and self._pool.is_waiting(following):
            self._pool.use_up(following)
            acts += self._given_again(following, following.pieces, unasked=True)
            following = self._pool.after(following)
        return acts

    def _given_again(
        self,
        call: Call,
        pieces: tuple[Timed, ...],
        words: list[bytes] | None = None,
        *,
        unasked: bool = False,
    ) -> list[Act]:
        """Pieces as they were; said anew where this connection speaks another version of RESP."""
        if self._is_mute:
            return []
        spoken = 3 if call.extra["version"] == 3 else 2
        if words is not None and name_of(words) == "HELLO":
            spoken = self._state.version
        if spoken == self._state.version or call.dialogue == self._dialogue or not pieces:
            return sends(pieces, unasked=unasked)
        whole = Values().feed(b"".join(piece.data for piece in pieces))
        said = b"".join(encode(_mapped(one.said, words), self._state.version) for one in whole)
        return [Send(said, sum(piece.after_ns for piece in pieces), unasked)]

    def _finish(self, call: Call) -> list[Act]:
        if call.end is CallEnd.ANSWERED:
            return []
        acts = ending_acts(call.end, call.end_after_ns)
        self._is_over = self._is_over or bool(acts)
        self._is_mute = not acts
        return acts

    def _say(self, data: bytes) -> list[Act]:
        return [] if self._is_mute else [Send(data)]

    def _miss(self, found: PoolMatch) -> list[Act]:
        if self._is_mute:
            return []
        if self._resets:
            self._is_over = True
            return [Reset()]
        return [Send(b"-ERR relive: " + _miss_words(found).encode("utf-8", "replace") + b"\r\n")]


def _begins_as(call: Call, words: list[list[bytes]]) -> bool:
    known = call.extra["words"]
    return len(known) >= len(words) and all(
        encoded_command(one)[1:] == encoded_command(other)[1:] and name_of(one) == name_of(other)
        for one, other in zip(known, words, strict=False)
    )


def _between(pieces: tuple[Timed, ...], begin: int, end: int) -> tuple[Timed, ...]:
    """Bytes of pieces from place to place."""
    found: list[Timed] = []
    at = 0
    for piece in pieces:
        stop = at + len(piece.data)
        if stop > begin and at < end:
            found.append(
                Timed(piece.after_ns if at >= begin else 0, piece.data[max(0, begin - at) : end - at])
            )
        at = stop
    return tuple(found)


def _mapped(said: Said, words: list[bytes] | None) -> Said:
    """What RESP2 tells as a list of names and values is a map in RESP3, in these commands."""
    kind, content = said
    if kind == b"*" and words is not None and isinstance(content, list) and len(content) % 2 == 0:
        is_map = name_of(words) == "HGETALL" or [word.upper() for word in words[:2]] == [b"CONFIG", b"GET"]
        return (b"%", content) if is_map else said
    return said


def _miss_words(found: PoolMatch) -> str:
    """One line, without anything that would end it."""
    commands = found.asked.get("commands") or [found.asked.get("command", [])]
    text = "; ".join(_shown(one) for one in commands[:4]) + " was not recorded"
    if found.nearest is not None and found.differs:
        nearest = found.nearest.asked.get("commands") or [found.nearest.asked.get("command", [])]
        text += f". Nearest: {'; '.join(_shown(one) for one in nearest[:4])}, which differs in {', '.join(found.differs[:8])}"
    elif found.nearest is not None:
        text += " once more, and a write is answered once only"
    return "".join(one if one.isprintable() else "?" for one in text)[:1000]


def _shown(command: Any) -> str:
    words = command if isinstance(command, list) else [command]
    return " ".join(one if isinstance(one, str) else "..." for one in words[:8])[:200]
