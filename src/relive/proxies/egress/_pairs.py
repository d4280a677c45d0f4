"""Connections whose bytes go as they come: carried by threads in C (``relay_library/pairs.c``), which outlive the recorder.

Nothing of them is in this process's memory alone. The keeper has both sockets of each, and where they stood when it was given them;
the next recorder asks the kernel where they stand now, and goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from relive.proxies.egress._calls import reset
from relive.proxies.egress._carrier import Opening
from relive.proxies.egress._keeper import TEXT_MOST, Keeper, Kept, copies_of
from relive.proxies.relay import Post, PostKind, SocketPlaces
from relive.proxies.relay_writer import RelayWriter
from relive.recording.dialogues import Tls, Way

__all__ = ["Pairs", "Places", "Standing", "standing"]

_THREADS_MOST = 2


class Places(NamedTuple):
    """Where the two sockets of a connection stand: the service's, and the other one."""

    inner: SocketPlaces
    outer: SocketPlaces


class Standing(NamedTuple):
    """Of one direction: bytes that were handed on, and how many of them wait to be read once more."""

    said: int
    again: int


def standing(way: Way, said: int, before: Places, now: Places) -> Standing:
    """Where a direction stands that was at ``said`` when the sockets were at ``before``.

    Bytes are taken from where they came after they were sent, so more may have been sent than taken.
    """
    source, destination = ("inner", "outer") if way is Way.UP else ("outer", "inner")
    taken = getattr(now, source).read - getattr(before, source).read
    sent = getattr(now, destination).written - getattr(before, destination).written
    return Standing(said + max(taken, sent), max(0, sent - taken))


@dataclass(frozen=True, slots=True)
class _Known:
    """What the next recorder has to know of a connection."""

    opening: Opening
    said: tuple[int, int]
    places: Places

    def packed(self) -> bytes:
        one = self.opening
        opened = (
            one.number,
            one.to,
            one.origin,
            one.at,
            one.connect_ns,
            one.bases,
            one.tls and one.tls.value,
        )
        packed: bytes = msgpack.packb((self.said, self.places, opened))
        return packed

    @classmethod
    def unpacked(cls, text: bytes) -> _Known:
        said, (inner, outer), opened = msgpack.unpackb(text, use_list=False)
        number, to, origin, at, connect_ns, bases, tls = opened
        opening = Opening(number, to, origin, at, connect_ns, bases, Tls(tls) if tls else None)
        return cls(opening, said, Places(SocketPlaces(*inner), SocketPlaces(*outer)))


class Pairs:
    """A ``GateKeeper`` of all that it carries. Lives in the recorder's event loop.

    Attributes:
        keeper: None: connections end with this process.
        waiting: the sockets of what is kept and not carried yet, by number.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: RelayWriter) -> None:
        self.keeper: Keeper | None = None
        self.waiting: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._loop = loop
        self._writer = writer
        self._relay = writer.relay
        self._known: dict[int, bytes] = {}  # what the keeper has, by number
        self._carried: set[int] = set()

    def start(self) -> bool:
        """False: it cannot be done here."""
        if not self._relay.start_pairs(min(_THREADS_MOST, len(os.sched_getaffinity(0)))):
            return False
        self._loop.add_reader(self._relay.posts_fd, self.hear)
        return True

    @property
    def count(self) -> int:
        """How many it carries."""
        return len(self._carried)

    @property
    def has_said_all(self) -> bool:
        """Every service has ended its direction, and all of it has been handed on."""
        return self._relay.pairs_talking() == 0

    def hand_to_keeper(
        self,
        opening: Opening,
        inner: socket.socket,
        outer: socket.socket,
        said: tuple[int, int] = (0, 0),
    ) -> None:
        """From now on a connection outlives the recorder. No byte of it is on its way in this process."""
        if self.keeper is None:
            return
        with contextlib.suppress(OSError):  # it is reset already
            places = Places(self._relay.places(inner.fileno()), self._relay.places(outer.fileno()))
            text = _Known(opening, said, places).packed()
            if len(text) <= TEXT_MOST:
                self._known[opening.number] = text
                self.keeper.hold(opening.number, (inner.fileno(), outer.fileno()), text)

    def let_go(self, number: int) -> None:
        """It ends with the recorder from now on, or has ended."""
        if self._known.pop(number, None) is not None and self.keeper is not None:
            self.keeper.let_go(number)

    def carry(
        self,
        opening: Opening,
        inner: socket.socket,
        outer: socket.socket,
        said: tuple[int, int] = (0, 0),
        told_in: int = 0,
    ) -> None:
        """Hand on, and record, whatever comes. The sockets are this object's from now on.

        ``said``: bytes that are recorded; ``told_in``: the segment in which the dialogue was opened, 0: it is told of again.
        """
        number, descriptors = opening.number, (inner.fileno(), outer.fileno())
        opened = msgpack.packb(opening.fields())
        if self._relay.add_pair(number, descriptors, said=said, told_in=told_in, opened=opened):
            self._carried.add(number)
            inner.detach()
            outer.detach()
            return
        self.let_go(number)
        reset(inner)
        reset(outer)

    def resume(self, kept: Kept) -> tuple[Opening, socket.socket, socket.socket] | None:
        """Go on with a connection of an earlier recorder. One on which nothing was said yet is returned."""
        self._known[kept.number] = kept.text
        if len(kept.descriptors) < len(Way):  # the limit of descriptors is reached
            for one in kept.descriptors:
                os.close(one)
            self.let_go(kept.number)
            return None
        inner, outer = (socket.socket(fileno=one) for one in kept.descriptors)
        known = _Known.unpacked(kept.text)
        try:
            now = Places(self._relay.places(inner.fileno()), self._relay.places(outer.fileno()))
        except OSError:
            self.let_go(kept.number)
            reset(inner)
            reset(outer)
            return None
        up, down = (standing(way, known.said[index], known.places, now) for index, way in enumerate(Way))
        _skip(inner, up.again)
        _skip(outer, down.again)
        said = up.said, down.said
        if said == (0, 0):
            return known.opening, inner, outer
        self.carry(known.opening, inner, outer, said)
        return None

    def all_kept(self) -> Iterator[Kept]:
        """For a new keeper; what has been let go before it comes is left out."""
        for number in list(self._known):
            text, ends = self._known.get(number), self.waiting.get(number)
            if text is None:
                continue
            descriptors = (
                self._relay.copies_of_pair(number)
                if ends is None
                else copies_of(one.fileno() for one in ends)
            )
            if descriptors is not None:
                yield Kept(number, descriptors, text)

    def hear(self) -> None:
        """Act on all that the relay has posted by now."""
        for post in self._relay.posts():
            self._act_on(post)

    # For the gate

    def freeze(self) -> None:
        """Nothing that is recorded goes to the service from now on."""
        self._relay.freeze_pairs()

    def thaw(self) -> None:
        """Go on."""
        self._relay.thaw_pairs()

    def shut(self) -> None:
        """The recorder ends: all connections do."""
        self._loop.remove_reader(self._relay.posts_fd)
        self._relay.end_pairs()
        self.hear()
        if self.keeper is not None:
            self.keeper.end()

    def _act_on(self, post: Post) -> None:
        if post.kind is PostKind.PAIR_ENDED:
            self._carried.discard(post.number)
            self.let_go(post.number)
        elif post.kind is PostKind.RECORDING_OFF:
            self._writer.switched_off(post.extra)
        elif post.kind is PostKind.RECORDING_ON:
            self._writer.switched_on(post.extra)
        elif post.kind is PostKind.SEGMENT_BEGUN:
            self._writer.segment_begun()


def _skip(sock: socket.socket, count: int) -> None:
    """Read bytes that have been handed on already."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):
        while count > 0 and (data := sock.recv(min(count, 1 << 18))):
            count -= len(data)
