"""A Redis that knows what was recorded, for commands that were not: fakeredis, asked for by option only.

What stands in it: the values of recorded reads (of a key that was not written before in the recording), and on top of that what
recorded commands wrote and read, those before the replay and, as it goes on, those that are given. So a key that the recording
never touched is not there, and what a script wrote is not known. Each server (address and port) has one of its own, with its
databases.

A command that would wait is run as in a transaction, where it does not; if it finds nothing, it is told so after its time-out, or
never, as Redis would. Scripts, modules and whatever else fakeredis has not are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from relive.errors import ToolMissing
from relive.protocols.call import Call, CallEnd
from relive.protocols.pool import Pool
from relive.protocols.redis.commands import name_of
from relive.protocols.redis.effects import is_read
from relive.protocols.redis.housekeeping import is_housekeeping
from relive.protocols.redis.resp import Said, Values
from relive.recording.events import EventKind

__all__ = ["Simulation", "Worked"]

_NS = 1_000_000_000
# Time-out: the last word [s].
_LAST_WAITS = frozenset("BLPOP BRPOP BRPOPLPUSH BLMOVE BZPOPMIN BZPOPMAX".split())
_FIRST_WAITS = frozenset(("BLMPOP", "BZMPOP"))  # the first
_STREAM_WAITS = frozenset(("XREAD", "XREADGROUP"))  # behind BLOCK [ms]
_MANY_KEYS = frozenset(
    "DEL UNLINK MGET MSET MSETNX EXISTS RENAME COPY BLPOP BRPOP LMOVE RPOPLPUSH SMOVE SINTERSTORE SUNIONSTORE SDIFFSTORE "
    "ZUNIONSTORE ZINTERSTORE EVAL EVALSHA FCALL".split()
)
_NEVER = frozenset(
    "MONITOR SYNC PSYNC SHUTDOWN DEBUG WAIT WAITAOF REPLICAOF SLAVEOF CLIENT EVAL EVALSHA FCALL SCRIPT".split()
)
_Command = list[bytes]


@dataclass(frozen=True, slots=True)
class Worked:
    """What is said, and after what time; None as time: never."""

    said: list[Said]
    after_ns: int | None = 0


@dataclass(slots=True)
class _Server:
    server: Any
    clients: dict[int, Any] = field(default_factory=dict)


class Simulation:
    """All simulated servers of a replay. For one thread.

    Raises:
        ToolMissing: fakeredis is not installed.
    """

    def __init__(self) -> None:
        try:
            import fakeredis  # noqa: PLC0415  a package that is not needed otherwise
        except ImportError as error:
            raise ToolMissing(
                "the Python package fakeredis is not installed",
                cause="Redis commands that were not recorded are to be simulated, which is done by it",
                remedy="install it with `pip install 'relive[redis]'`, or leave out --on-miss redis-command=simulate",
            ) from error
        self._fakeredis: Any = fakeredis
        self._servers: dict[tuple[str, int], _Server] = {}
        self._noted: list[Call] = []

    def note(self, call: Call) -> None:
        """A recorded call was given: what it read and wrote is so from now on."""
        if call.end is not CallEnd.ANSWERED or call.kind is not EventKind.REDIS_COMMAND or call.extra["push"]:
            return
        known = self._servers.get(call.to)
        if known is None:
            self._noted.append(call)
        else:
            self._apply(known, call)

    def run(
        self,
        pool: Pool,
        to: tuple[str, int],
        database: int,
        commands: list[_Command],
        *,
        is_transaction: bool,
    ) -> Worked | None:
        """What a command says, or EXEC after all of a transaction; None where that cannot be said."""
        server = self._servers.get(to)
        if server is None:
            server = self._servers[to] = _Server(self._fakeredis.FakeServer(version=(7,)))
            known = [call for call in pool.of(EventKind.REDIS_COMMAND) if call.to == to]
            self._seed(server, known)
            for call in self._happened(pool, known):
                self._apply(server, call)
        if any(name_of(words) in _NEVER for words in commands):
            return None
        if is_transaction:
            said = self._ask(server, database, [[b"MULTI"], *commands, [b"EXEC"]])
            return None if any(_is_unknown(one) for one in said) else Worked(said[-1:])
        wait = _wait_of(commands[0])
        if wait is None:
            said = self._ask(server, database, commands)
            return None if _is_unknown(said[0]) else Worked(said)
        said = self._ask(server, database, [[b"MULTI"], commands[0], [b"EXEC"]])
        answers = said[-1][1]
        if any(_is_unknown(one) for one in said) or not isinstance(answers, list) or not answers:
            return None
        return Worked(answers, 0 if answers[0][1] is not None else wait or None)

    # -- what stands in it --------------------------------------------------------------------------------------------

    def _seed(self, server: _Server, calls: Iterable[Call]) -> None:
        written: set[tuple[int, bytes]] = set()
        known: set[tuple[int, tuple[bytes, ...]]] = set()
        for call in calls:
            if call.end is not CallEnd.ANSWERED or call.extra["push"]:
                continue
            for database, words, said in _parts(call):
                keys = {(database, key) for key in _keys_of(words)}
                if not is_read(words):
                    written |= keys
                elif not keys & written and (database, tuple(words)) not in known:
                    self._know(server, database, words, said)
                    known.add((database, tuple(words)))

    def _happened(self, pool: Pool, known: list[Call]) -> list[Call]:
        """Calls that are used up: first those of the time before the replay, then what was given, as it was given."""
        given = {(call.dialogue, call.index) for call in self._noted}
        before = [
            call for call in known if not pool.is_waiting(call) and (call.dialogue, call.index) not in given
        ]
        whole = [call for call in before if call.end is CallEnd.ANSWERED and not call.extra["push"]]
        return [*whole, *(call for call in self._noted if call.to == known[0].to)] if known else []

    def _apply(self, server: _Server, call: Call) -> None:
        for database, words, said in _parts(call):
            if is_housekeeping(words):
                continue
            if is_read(words):
                self._know(server, database, words, said)
            elif said[0] not in b"-!" and name_of(words) not in _NEVER:
                self._ask(server, database, [[b"MULTI"], words, [b"EXEC"]])  # where nothing waits

    def _know(self, server: _Server, database: int, words: _Command, said: Said) -> None:
        """A key has the value that was read."""
        for command in _writing(words, said):
            self._ask(server, database, [command])

    def _ask(self, server: _Server, database: int, commands: list[_Command]) -> list[Said]:
        client = server.clients.get(database)
        if client is None:
            connections = self._fakeredis.FakeStrictRedis(server=server.server, db=database)
            client = server.clients[database] = connections.connection_pool.get_connection()
        found: list[Said] = []
        for words in commands:
            client.send_command(*words)
            try:
                said = _said(client.read_response(disable_decoding=True))
            except Exception as error:  # what the server says, as an exception of redis-py
                said = _said(error)
            status = said == (b"$", b"OK") and not is_read(words)
            found.append((b"+", b"OK") if status else said)
        return found


def _parts(call: Call) -> Iterator[tuple[int, _Command, Said]]:
    """(database, command, what was said) of a call; of a transaction each with its part of what EXEC said."""
    said = [one.said for one in Values().feed(b"".join(piece.data for piece in call.pieces))]
    words = call.extra["words"]
    database = int(call.asked.get("database", 0))
    if not said or not words:
        return
    if not call.asked.get("transaction"):
        yield database, words[0], said[0]
        return
    answers = said[-1][1]
    if not call.asked.get("discarded") and isinstance(answers, list):
        for one, answer in zip(words[1:-1], answers, strict=False):
            yield database, one, answer


def _writing(words: _Command, said: Said) -> list[_Command]:
    """Commands after which a read says what it said."""
    writer = _WRITERS.get(name_of(words))
    if writer is None or len(words) < 2:
        return []
    return writer(words[1:], said[1])


def _keys_of(words: _Command) -> list[bytes]:
    """The keys of a command; for some more than that."""
    return words[1:] if name_of(words) in _MANY_KEYS else words[1:2]


def _items(content: Any) -> list[bytes] | None:
    """The texts of a list of texts, else None."""
    if not isinstance(content, list) or not all(isinstance(one[1], bytes) for one in content):
        return None
    return [one[1] for one in content]


def _get(given: _Command, content: Any) -> list[_Command]:
    return [[b"SET", given[0], content]] if isinstance(content, bytes) else []


def _mget(given: _Command, content: Any) -> list[_Command]:
    known = content if isinstance(content, list) else []
    pairs = zip(given, known, strict=False)
    return [[b"SET", key, one[1]] for key, one in pairs if isinstance(one[1], bytes)]


def _whole(write: bytes) -> Callable[[_Command, Any], list[_Command]]:
    def writer(given: _Command, content: Any) -> list[_Command]:
        items = _items(content)
        return [[b"DEL", given[0]], [write, given[0], *items]] if items else []

    return writer


def _hget(given: _Command, content: Any) -> list[_Command]:
    return [[b"HSET", given[0], given[1], content]] if isinstance(content, bytes) and len(given) > 1 else []


def _hmget(given: _Command, content: Any) -> list[_Command]:
    known = content if isinstance(content, list) else []
    pairs = zip(given[1:], known, strict=False)
    return [[b"HSET", given[0], name, one[1]] for name, one in pairs if isinstance(one[1], bytes)]


def _lrange(given: _Command, content: Any) -> list[_Command]:
    return _whole(b"RPUSH")(given, content) if given[1:] == [b"0", b"-1"] else []


def _zrange(given: _Command, content: Any) -> list[_Command]:
    if [word.upper() for word in given[1:]] != [b"0", b"-1", b"WITHSCORES"] or not isinstance(content, list):
        return []
    flat = [one for pair in content for one in pair[1]] if content and content[0][0] == b"*" else content
    items = _items(flat)
    if not items or len(items) % 2:
        return []
    scored = [word for member, score in zip(items[::2], items[1::2], strict=True) for word in (score, member)]
    return [[b"DEL", given[0]], [b"ZADD", given[0], *scored]]


def _ttl(unit: bytes) -> Callable[[_Command, Any], list[_Command]]:
    def writer(given: _Command, content: Any) -> list[_Command]:
        return [[unit, given[0], b"%d" % content]] if isinstance(content, int) and content > 0 else []

    return writer


_WRITERS: dict[str, Callable[[_Command, Any], list[_Command]]] = {
    "GET": _get,
    "MGET": _mget,
    "HGETALL": _whole(b"HSET"),
    "HGET": _hget,
    "HMGET": _hmget,
    "LRANGE": _lrange,
    "SMEMBERS": _whole(b"SADD"),
    "ZRANGE": _zrange,
    "TTL": _ttl(b"EXPIRE"),
    "PTTL": _ttl(b"PEXPIRE"),
}


def _wait_of(words: _Command) -> int | None:
    """How long a command would wait in nanoseconds, 0 for ever; None where it does not wait."""
    name = name_of(words)
    given, unit = None, _NS
    if name in _LAST_WAITS:
        given = words[-1]
    elif name in _FIRST_WAITS and len(words) > 1:
        given = words[1]
    elif name in _STREAM_WAITS:
        upper = [word.upper() for word in words[:-1]]
        if b"BLOCK" not in upper:
            return None
        given, unit = words[upper.index(b"BLOCK") + 1], 1_000_000
    if given is None:
        return None
    try:
        return max(0, int(float(given) * unit))
    except (ValueError, OverflowError):
        return 1  # it will be told what is wrong with it


def _said(value: Any) -> Said:
    if isinstance(value, bool):
        return (b"#", value)
    if value is None or isinstance(value, bytes):
        return (b"$", value)
    if isinstance(value, str):
        return (b"$", value.encode())
    if isinstance(value, int):
        return (b":", value)
    if isinstance(value, float):
        return (b",", repr(value).encode())
    if isinstance(value, BaseException):
        text = str(value)
        known = text.partition(" ")[0]
        return (b"-", (text if known.isupper() else f"ERR {text}").encode("utf-8", "replace"))
    if isinstance(value, dict):
        return (b"%", [_said(one) for pair in value.items() for one in pair])
    return (b"*", [_said(one) for one in value])


def _is_unknown(said: Said) -> bool:
    return said[0] == b"-" and b"unknown command" in said[1].lower()
