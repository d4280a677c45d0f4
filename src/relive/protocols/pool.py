"""The recorded calls of a replay: each is found by what is asked, and used once.

Rules, in this order: a call of the same connection, in its order; one of another connection, in the order of time. Calls are
the same when kind and ``asked`` are equal, but for what is declared to differ by nature. What was read only may be given once
more when it is asked once more, if the protocol says so (``again``).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relive.protocols.call import Call
from relive.record.events import EventKind

__all__ = ["Found", "Pool"]


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a question in a replay.

    Attributes:
        connection: number of the live connection.
        call: the recorded call, None for a miss.
        nearest: of a miss, the recorded call (used or not) that differs least; differs: the paths in ``asked`` that do.
        again: the call had been used before.
    """

    connection: int
    kind: EventKind
    asked: Mapping[str, Any]
    call: Call | None
    nearest: Call | None = None
    differs: tuple[str, ...] = ()
    again: bool = False


class Pool:
    """Recorded calls, to be used up. For one thread.

    Args:
        calls: those that may be given, in the order of time.
        ignore: names of what may differ, as ``--ignore`` takes them.
        on_found: told of every question.

    Attributes:
        ignore: the same, for sessions that compare more than ``asked``.
    """

    def __init__(
        self,
        calls: Iterable[Call],
        *,
        ignore: Collection[str] = (),
        on_found: Callable[[Found], None] = lambda _found: None,
    ) -> None:
        self.ignore = frozenset(ignore)
        self._on_found = on_found
        self._all = list(calls)
        self._unused: dict[str, deque[Call]] = defaultdict(deque)
        self._used: dict[str, Call] = {}
        for call in self._all:
            self._unused[_key(call.kind, self.masked(call.asked))].append(call)

    def masked(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What is compared of a question."""
        return {name: value for name, value in asked.items() if name not in self.ignore}

    def take(
        self,
        kind: EventKind,
        asked: Mapping[str, Any],
        *,
        connection: int,
        dialogue: int | None = None,
        again: bool = False,
    ) -> Found:
        """Find the recorded call for a question and use it up.

        Args:
            dialogue: number of the recorded connection that this one continues, if it does.
            again: a call that was used may be given once more.
        """
        key = _key(kind, self.masked(asked))
        waiting = self._unused.get(key)
        if waiting:
            own = next((call for call in waiting if call.dialogue == dialogue), waiting[0])
            waiting.remove(own)
            self._used[key] = own
            found = Found(connection, kind, asked, own)
        elif again and key in self._used:
            found = Found(connection, kind, asked, self._used[key], again=True)
        else:
            nearest, differs = self._nearest(kind, asked)
            found = Found(connection, kind, asked, None, nearest, differs)
        self._on_found(found)
        return found

    def use_up(self, call: Call) -> None:
        """A call that happened before: it is not given any more."""
        waiting = self._unused.get(_key(call.kind, self.masked(call.asked)))
        if waiting and call in waiting:
            waiting.remove(call)

    def left(self) -> list[Call]:
        """Calls that were recorded and not asked for, in the order of time."""
        left = [call for waiting in self._unused.values() for call in waiting]
        return sorted(left, key=lambda call: (call.asked_mono_ns, call.dialogue, call.index))

    def _nearest(self, kind: EventKind, asked: Mapping[str, Any]) -> tuple[Call | None, tuple[str, ...]]:
        best: Call | None = None
        fewest: tuple[str, ...] = ()
        for call in self._all:
            if call.kind is not kind:
                continue
            differs = tuple(_differences(self.masked(call.asked), self.masked(asked), "$"))
            if best is None or len(differs) < len(fewest):
                best, fewest = call, differs
        return best, fewest


def _key(kind: EventKind, asked: Mapping[str, Any]) -> str:
    return f"{kind.value} {json.dumps(asked, sort_keys=True, separators=(',', ':'))}"


def _differences(one: Any, other: Any, path: str) -> list[str]:
    """Paths at which two JSON values differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return [
            found
            for name in sorted(one.keys() | other.keys())
            for found in (
                _differences(one[name], other[name], f"{path}.{name}")
                if name in one and name in other
                else [f"{path}.{name}"]
            )
        ]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return [
            found
            for index, (left, right) in enumerate(zip(one, other, strict=True))
            for found in _differences(left, right, f"{path}[{index}]")
        ]
    return [] if one == other else [path]
