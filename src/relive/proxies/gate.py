"""The gate before the service, and the requests held before it.

A *closed gate* lets nothing through to the service, so that a commit and the cursor into the recording belong
together. A *hold* keeps one request back until the agent has committed. Both end by themselves: the service's
traffic comes first, and an agent may die at any moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

__all__ = ["CLOSED_SECONDS", "HELD_SECONDS", "Gate", "GateKeeper", "Holder", "Holds"]

CLOSED_SECONDS = 10.0  # a gate opens by itself after this
HELD_SECONDS = 30.0  # a held request goes on by itself after this


class GateKeeper(Protocol):
    """What stands at the gate: every connection."""

    def freeze(self) -> None:
        """Let nothing out to the service from now on."""

    def thaw(self) -> None:
        """Go on."""

    def shut(self) -> None:
        """The proxy ends."""


class Holder(Protocol):
    """Who has a request held."""

    def release(self, request: int) -> None:
        """Hand the request on."""


KeeperT = TypeVar("KeeperT", bound=GateKeeper)


class Gate(Generic[KeeperT]):
    """Open or closed, by one owner at a time (an agent's connection; any object)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: RecordingWriter) -> None:
        self._loop = loop
        self._writer = writer
        self._timer: asyncio.TimerHandle | None = None
        self._closed_at = 0.0
        self._closed_before = 0.0
        self._cursor = 0
        self.owner: object | None = None
        self.keepers: dict[int, KeeperT] = {}
        self.opened_by_itself = 0

    @property
    def is_closed(self) -> bool:
        """True while nothing goes to the service."""
        return self.owner is not None

    def clock(self) -> float:
        """Seconds on a clock that stands still while the gate is closed."""
        now = self._closed_at if self.owner is not None else time.monotonic()
        return now - self._closed_before

    def close(self, owner: object) -> int:
        """Close the gate, which must be open, and return the cursor: no later event has reached the service."""
        self.owner = owner
        self._closed_at = time.monotonic()
        for keeper in self.keepers.values():
            keeper.freeze()
        self._writer.flush()
        self._cursor = self._writer.last_seq
        self._timer = self._loop.call_later(CLOSED_SECONDS, self._open_late)
        return self._cursor

    def open(self, commit: str | None) -> int:
        """Open the gate, which must be closed; record the commit if there was one. Returns the seq of that event."""
        if commit is not None:
            self.record_commit(commit, self._cursor, round((time.monotonic() - self._closed_at) * 1e9))
        seq = self._writer.last_seq
        self._open()
        return seq

    def record_commit(self, commit: str, cursor: int, closed_ns: int | None) -> None:
        """Record that a commit was taken whose state is that of ``cursor``."""
        fields = {"commit": commit, "cursor": cursor, "closed_ns": closed_ns}
        self._writer.append(EventKind.COMMIT_TAKEN, fields=fields)
        self._writer.flush()

    def owner_gone(self, owner: object) -> None:
        """Open the gate if that owner closed it."""
        if self.owner is not None and self.owner is owner:
            self._open_by_itself("the gate opened by itself: the agent that closed it went away")

    def _open_late(self) -> None:
        self._open_by_itself(f"the gate opened by itself after {CLOSED_SECONDS:g} s")

    def _open_by_itself(self, text: str) -> None:
        self.opened_by_itself += 1
        self._writer.append(EventKind.NOTE, fields={"about": "gate", "text": text, "cursor": self._cursor})
        self._writer.flush()
        self._open()

    def _open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._closed_before += time.monotonic() - self._closed_at
        self.owner = None
        for keeper in list(self.keepers.values()):
            keeper.thaw()


class Holds:
    """Requests that wait for the agent's word, in the order they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: RecordingWriter) -> None:
        self._loop = loop
        self._writer = writer
        self._held: dict[int, tuple[Holder, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, request: int, holder: Holder) -> None:
        """Hold a request; ``holder.release`` is called once, unless ``forget`` is before."""
        timer = self._loop.call_later(HELD_SECONDS, self._release_late, request)
        self._held[request] = (holder, timer)

    def release(self, requests: Iterable[int]) -> list[int]:
        """Let go of those that are held, and return which these were."""
        return [request for request in requests if self._release(request)]

    def release_all(self, why: str) -> None:
        """Let go of all, with a note for each."""
        for request in list(self._held):
            self._release(request, why)

    def forget(self, request: int) -> None:
        """The client of a held request went away; the request was never handed on."""
        held = self._held.pop(request, None)
        if held is not None:
            held[1].cancel()
            self._note(request, "its client went away while it was held; it was never handed on")

    def _release_late(self, request: int) -> None:
        self._release(request, f"handed on without the agent's word after {HELD_SECONDS:g} s")

    def _release(self, request: int, why: str | None = None) -> bool:
        held = self._held.pop(request, None)
        if held is None:
            return False
        held[1].cancel()
        if why is not None:
            self._note(request, why)
        held[0].release(request)
        return True

    def _note(self, request: int, text: str) -> None:
        self._writer.append(EventKind.NOTE, 0, request, fields={"about": "hold", "text": text})
        self._writer.flush()
