"""The recorded calls of a replay: each is found by what is asked, and used once.

Rules, in this order: a call that names the same request of the service (``matching.origin``); a call of the same connection, in
its order; one of another connection, in the order of time. Calls are the same when kind and ``asked`` are equal, but for what is
declared to differ by nature: ``matching.py`` says what is compared.
What was read only may be given once more when it is asked once more, if the protocol says so (``again``): what the same request was
given last, before what another request has still to ask for.

Idea: each call lies in two queues by the text of what is compared of it (``_key``), of all and of its connection, and in two more
if it names its request: of that, and of both. So a question is a look-up for each rule. Only a miss is compared with all calls, to
name the nearest.
Invariant: a call is in ``_waiting`` exactly as long as it was not used; a queue may still have used ones, which are dropped as they
come to its front. ``_used`` has the last that was used of each key, of all and of each request.
What answers inside Python processes has rules of its own (``relive_recorder/playing/answer_index.py``): there requests and
lanes are known.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relive.protocols.call import Call
from relive.protocols.matching import compared, differences, origin
from relive.recording.events import EventKind

__all__ = ["Pool", "PoolMatch"]

_STATEMENT = "statement"
_QueueKey = tuple[str, str | None, int | None]  # key, request, connection


@dataclass(frozen=True, slots=True)
class PoolMatch:
    """What became of a question in a replay.

    Attributes:
        connection: number of the live connection.
        call: the recorded call, None for a miss and for what was simulated.
        nearest: of a miss, the recorded call (used or not) that differs least; differs: the names of what does, as ``--ignore``
            takes them.
        again: the call had been used before.
        simulated: it was not recorded; what was answered was worked out from what was (``--on-miss redis-command=simulate``).
    """

    connection: int
    kind: EventKind
    asked: Mapping[str, Any]
    call: Call | None
    nearest: Call | None = None
    differs: tuple[str, ...] = ()
    again: bool = False
    simulated: bool = False

    @property
    def is_miss(self) -> bool:
        """Nothing was recorded that answers it, and nothing stood in for that."""
        return self.call is None and not self.simulated


class Pool:
    """Recorded calls, to be used up. For one thread.

    Args:
        calls: those that may be given, in the order of time.
        ignore: names of what may differ, as ``--ignore`` takes them; see ``matching.py``.
        on_found: told of every question.

    Attributes:
        ignore: the same, for sessions that compare more than ``asked``.
    """

    def __init__(
        self,
        calls: Iterable[Call],
        *,
        ignore: Collection[str] = (),
        on_found: Callable[[PoolMatch], None] = lambda _found: None,
    ) -> None:
        self.ignore = frozenset(ignore)
        self._on_found = on_found
        self._all = list(calls)
        self._queues: dict[_QueueKey, deque[Call]] = defaultdict(deque)
        self._used: dict[tuple[str, str | None], Call] = {}  # by key and request
        self._keys: dict[tuple[int, int], tuple[str, Call]] = {}  # by dialogue and index
        self._waiting: dict[EventKind, dict[tuple[int, int], Call]] = defaultdict(dict)
        self._compared: list[tuple[Call, dict[str, Any]]] = []
        for call in self._all:
            parts = compared(call.kind, call.asked, self.ignore)
            key = _key(call.kind, parts)
            for request in {None, _origin_of(call)}:
                self._queues[key, request, None].append(call)
                self._queues[key, request, call.dialogue].append(call)
            self._keys[call.dialogue, call.index] = key, call
            self._waiting[call.kind][call.dialogue, call.index] = call
            self._compared.append((call, parts))

    def masked(self, asked: Mapping[str, Any], kind: EventKind = EventKind.DIALOGUE_UP) -> dict[str, Any]:
        """What is compared of a question."""
        return compared(kind, asked, self.ignore)

    def has(self, kind: EventKind, asked: Mapping[str, Any], *, again: bool = False) -> bool:
        """Whether ``claim`` would find a call."""
        key = _key(kind, compared(kind, asked, self.ignore))
        return self._first(key) is not None or (again and (key, None) in self._used)

    def peek(self, kind: EventKind, asked: Mapping[str, Any], *, dialogue: int | None = None) -> Call | None:
        """The unused call that ``claim`` would give; nothing is used up or told."""
        return self._next(_key(kind, compared(kind, asked, self.ignore)), dialogue)

    def claim(
        self,
        kind: EventKind,
        asked: Mapping[str, Any],
        *,
        connection: int,
        dialogue: int | None = None,
        origin: str | None = None,
        again: bool = False,
        simulated: bool = False,
    ) -> PoolMatch:
        """Find the recorded call for a question and use it up.

        Args:
            dialogue: number of the recorded connection that this one continues, if it does.
            origin: what the question says of the request that it is asked for (``matching.origin``).
            again: a call that was used may be given once more.
            simulated: should it not be found, there is another answer to it.
        """
        found = self.find(kind, asked, connection=connection, dialogue=dialogue, origin=origin, again=again)
        if found is not None:
            return found
        if simulated:
            found = PoolMatch(connection, kind, asked, None, simulated=True)
        else:
            nearest, differs = self._nearest(kind, compared(kind, asked, self.ignore))
            found = PoolMatch(connection, kind, asked, None, nearest, differs)
        self._on_found(found)
        return found

    def find(
        self,
        kind: EventKind,
        asked: Mapping[str, Any],
        *,
        connection: int,
        dialogue: int | None = None,
        origin: str | None = None,
        again: bool = False,
    ) -> PoolMatch | None:
        """As ``claim``, but a miss is None and is not told of."""
        key = _key(kind, compared(kind, asked, self.ignore))
        own = self._next(key, dialogue, origin)
        given = (self._used.get((key, origin)) or self._used.get((key, None))) if again else None
        if own is not None and not (given is not None and _is_of_another(own, given, origin)):
            self._use(key, own, origin)
            found = PoolMatch(connection, kind, asked, own)
        elif given is not None:
            found = PoolMatch(connection, kind, asked, given, again=True)
        else:
            return None
        self._on_found(found)
        return found

    def give(self, call: Call, *, connection: int) -> PoolMatch:
        """A protocol has found the call itself: it is used up, and told of."""
        self.use_up(call)
        found = PoolMatch(connection, call.kind, call.asked, call)
        self._on_found(found)
        return found

    def use_up(self, call: Call) -> None:
        """A call that happened before: it is not given any more."""
        known = self._keys.get((call.dialogue, call.index))
        if known is not None and self.is_waiting(known[1]):
            self._use(known[0], known[1], _origin_of(known[1]))

    def after(self, call: Call) -> Call | None:
        """The call that came next on its connection, used or not."""
        known = self._keys.get((call.dialogue, call.index + 1))
        return known[1] if known is not None else None

    def waiting(self, kind: EventKind) -> Iterator[Call]:
        """Calls of a kind that were not used yet, in the order of time."""
        return iter(list(self._waiting[kind].values()))

    def is_waiting(self, call: Call) -> bool:
        """Whether it may still be given."""
        return (call.dialogue, call.index) in self._waiting[call.kind]

    def of(self, kind: EventKind) -> list[Call]:
        """All calls of a kind, used or not, in the order of time."""
        return [call for call in self._all if call.kind is kind]

    def left(self) -> list[Call]:
        """Calls that were recorded and not asked for, in the order of time."""
        left = [call for waiting in self._waiting.values() for call in waiting.values()]
        return sorted(left, key=lambda call: (call.asked_mono_ns, call.dialogue, call.index))

    def _next(self, key: str, dialogue: int | None, origin: str | None = None) -> Call | None:
        """The first unused call for that request, else of that connection, else of any."""
        if origin is not None and self._first(key, origin) is None:
            origin = None
        return self._first(key, origin, dialogue) or self._first(key, origin)

    def _first(self, key: str, origin: str | None = None, dialogue: int | None = None) -> Call | None:
        """The first unused call of that request and that connection; None stands for any."""
        queue = self._queues.get((key, origin, dialogue))
        while queue and not self.is_waiting(queue[0]):
            queue.popleft()
        return queue[0] if queue else None

    def _use(self, key: str, call: Call, origin: str | None) -> None:
        self._waiting[call.kind].pop((call.dialogue, call.index), None)
        self._used[key, None] = self._used[key, origin] = call

    def _nearest(self, kind: EventKind, parts: Mapping[str, Any]) -> tuple[Call | None, tuple[str, ...]]:
        """The call that differs least, and in what; of queries only one of the same statement."""
        best: Call | None = None
        fewest: tuple[str, ...] = ()
        for call, known in self._compared:
            if call.kind is not kind or known.get(_STATEMENT) != parts.get(_STATEMENT):
                continue  # the answer to another statement would be none to this one
            most = 1 << 30 if best is None else len(fewest)
            differs = differences(kind, known, parts, most)
            if best is None or len(differs) < len(fewest):
                best, fewest = call, differs
        return best, fewest


def _origin_of(call: Call) -> str | None:
    return origin(call.extra.get("volatile", {}))


def _is_of_another(own: Call, given: Call, origin: str | None) -> bool:
    """``own`` is another request's, while ``given`` is of the very request that asks."""
    return origin is not None and _origin_of(given) == origin and _origin_of(own) not in (None, origin)


def _key(kind: EventKind, parts: Mapping[str, Any]) -> str:
    return f"{kind.value} {json.dumps(parts, sort_keys=True, separators=(',', ':'))}"
