"""Who must be there in a branch, and what may be answered: decided from the recording and the commit's connections alone.

Which calls may be given, and which are used up by then:

1. On a connection that the commit holds, those of which at least one byte had not reached the other end may be given. What had
   been asked and not been answered is used up; the protocol answers it when the connection goes on.
2. On all other connections, those that were asked after the commit.

All of them up to the incident's end and a moment beyond. Used ones are known all the same: they tell how one begins to talk to
a destination, and may be the nearest to a question that was not recorded.

Which connections go on: those whose dialogue was recorded from its beginning, as they were on the wire. The others are closed,
as if the other side had gone away, and told of.

How a destination is at first follows from what became of the first attempt to connect to it after the commit, how it is then from
the next ones; beyond the last it stays as it was then.
"""

from __future__ import annotations

import copy
import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from relive.images.sockets import TcpConnection
from relive.protocols.call import Call
from relive.protocols.egress_window import EgressWindow
from relive.protocols.session import Protocol, Resume
from relive.recording.dialogues import Dialogue, Tls, Way
from relive.recording.events import Event
from relive.sandbox.endpoints import Address, Door, Outside, plain_address

__all__ = ["ConnectAttempt", "Position", "StubEndpoint", "StubPlan", "Stubs", "position_of"]

_ESTABLISHED = 1
_WORD = 0xFFFFFFFF
_MOST_DESTINATIONS = 2000
_MOST_NOTES = 20
_SILENT_ERRORS = frozenset({"ETIMEDOUT", "EINPROGRESS", "EALREADY"})
# The address itself could not be reached: it is left away, and the kernel says the same.
_UNREACHABLE = frozenset({"EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL", "EACCES", "EPERM"})


class Position(NamedTuple):
    """Where a connection of the commit stood.

    Attributes:
        own, peer: addresses; up, down: TCP sequence number of the first byte that the service will send (again), and of
            the first that it does not have.
        is_open: both directions are.
    """

    own: Address
    peer: Address
    up: int
    down: int
    is_open: bool


def position_of(connection: TcpConnection) -> Position:
    """The position of a connection of the images."""
    stream = connection.stream
    return Position(
        connection.local,
        connection.peer,
        (stream.outq_seq - stream.outq_len) & _WORD,
        stream.inq_seq,
        connection.state == _ESTABLISHED,
    )


class ConnectAttempt(NamedTuple):
    """What became of an attempt to connect, and how long it took to become that."""

    door: Door
    took_ns: int


@dataclass(frozen=True, slots=True)
class StubEndpoint:
    """An (address, port) to which the service had connected.

    Attributes:
        attempts: in their order, at least one; beyond the last, the last.
        example: a dialogue in which is spoken what is spoken there.
    """

    attempts: tuple[ConnectAttempt, ...]
    example: Dialogue

    def attempt(self, number: int) -> ConnectAttempt:
        """What becomes of an attempt, counted from 0."""
        return self.attempts[min(number, len(self.attempts) - 1)]


@dataclass(frozen=True, slots=True)
class StubPlan:
    """What a branch gets.

    Attributes:
        names: name servers; lookups: what they were asked.
        resumes: connections that go on, by (own, peer) address as the commit has them.
        calls: all that are known, in the order of time; used: those of them that may not be given any more.
        authority: directory of what TLS was opened with.
        notes: what is not as it was, in sentences.
    """

    destinations: dict[Address, StubEndpoint]
    names: tuple[Address, ...]
    lookups: list[Event]
    resumes: dict[tuple[Address, Address], Resume]
    calls: list[Call]
    used: list[Call]
    authority: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def outside(self) -> Outside:
        """The same for the sandbox."""
        return Outside(
            continued=frozenset(self.resumes),
            destinations={
                address: destination.attempt(0).door for address, destination in self.destinations.items()
            },
            names=self.names,
        )


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A dialogue, understood."""

    dialogue: Dialogue
    calls: list[Call]


class Stubs:
    """What was recorded, understood once for all branches of a commit.

    Args:
        authority: directory of what TLS was opened with; None where it was not.
        protocol_of: what is spoken in a dialogue.
        until_ns: monotonic time after which calls are not given; None: to the recording's end.
    """

    def __init__(
        self,
        egress: EgressWindow,
        protocol_of: Callable[[Dialogue], Protocol],
        until_ns: int | None = None,
        authority: Path | None = None,
    ) -> None:
        self.egress = egress
        self._authority = authority
        self._protocol_of = protocol_of
        self._until_ns = until_ns
        self._spoken = [self._understand(dialogue) for dialogue in egress.dialogues]

    def _understand(self, dialogue: Dialogue) -> _Spoken:
        has_calls = dialogue.error is None and dialogue.tls is not Tls.CLOSED and _has_beginning(dialogue)
        return _Spoken(dialogue, self._protocol_of(dialogue).calls(dialogue) if has_calls else [])

    def plan(self, positions: Iterable[Position]) -> StubPlan:
        """Decide, for the connections that the service of a commit had opened."""
        resumes: dict[tuple[Address, Address], Resume] = {}
        notes: list[str] = []
        for position in positions:
            where = self._find(position)
            if isinstance(where, Resume):
                resumes[position.own, position.peer] = where
            else:
                host, port = position.peer
                notes.append(f"the connection to {host}:{port} is closed in the branch: {where}")
        notes = [*_shortened(notes), *self._troubles()]
        held = {where.dialogue.number: where for where in resumes.values()}
        calls = self.calls()
        return StubPlan(
            destinations=self._destinations(held),
            names=self._names(),
            lookups=self.egress.lookups,
            resumes=resumes,
            calls=calls,
            authority=self._authority,
            used=[call for call in calls if not self._may_be_given(call, held)],
            notes=notes,
        )

    def answering(self, changed: Mapping[tuple[int, int], Call]) -> Stubs:
        """The same with other calls in the place of some, by (dialogue, index).

        What was asked in part when the commit was taken is answered as it was all the same.
        """
        other = copy.copy(self)
        other._spoken = [
            replace(one, calls=[changed.get((call.dialogue, call.index), call) for call in one.calls])
            for one in self._spoken
        ]
        return other

    def without(self, calls: Iterable[tuple[int, int]]) -> Stubs:
        """The same without some calls, by (dialogue, index): nobody is given them."""
        gone = frozenset(calls)
        other = copy.copy(self)
        other._spoken = [
            replace(one, calls=[call for call in one.calls if (call.dialogue, call.index) not in gone])
            for one in self._spoken
        ]
        return other

    # -- connections of the commit ---------------------------------------------------------------------------------------

    def _find(self, position: Position) -> Resume | str:
        """The dialogue that a connection is, and where it stood; or why it cannot go on."""
        if not position.is_open:
            return "it was half closed"
        name = _plain(position.own), _plain(position.peer)
        mine = [one for one in self._spoken if (_plain(one.dialogue.origin), _plain(one.dialogue.to)) == name]
        if not mine:
            return "what was said on it is not recorded (any more)"
        # Its ports may have been used before, and again afterwards.
        before = [one for one in mine if one.dialogue.opened_mono_ns <= self.egress.taken_ns]
        why = ""
        for spoken in (*reversed(before), *(one for one in mine if one not in before)):
            where = _where(spoken.dialogue, position)
            if isinstance(where, Resume):
                return where
            why = why or where
        return why

    # -- destinations -----------------------------------------------------------------------------------------------------------

    def _destinations(self, held: dict[int, Resume]) -> dict[Address, StubEndpoint]:
        by_destination: dict[Address, list[_Spoken]] = defaultdict(list)
        for spoken in self._spoken:
            with_address = _plain_or_none(spoken.dialogue.to)
            if with_address is not None:
                by_destination[with_address].append(spoken)
        latest = sorted(
            by_destination, key=lambda destination: by_destination[destination][-1].dialogue.opened_mono_ns
        )[-_MOST_DESTINATIONS:]
        destinations = {}
        for address in sorted(latest):
            attempts = self._attempts(by_destination[address], held)
            if attempts:
                destinations[address] = StubEndpoint(attempts, _spoken_there(by_destination[address]))
        return destinations

    def _attempts(self, there: list[_Spoken], held: dict[int, Resume]) -> tuple[ConnectAttempt, ...]:
        if all(one.dialogue.error in _UNREACHABLE for one in there):
            return ()  # no address, so that it is not reached now
        known = [ConnectAttempt(_door(one.dialogue), one.dialogue.connect_ns) for one in there]
        later = [
            attempt
            for attempt, one in zip(known, there, strict=True)
            if one.dialogue.opened_mono_ns > self.egress.taken_ns and one.dialogue.number not in held
        ]
        opened = [attempt for attempt in known if attempt.door is Door.OPEN]
        return tuple(later or (opened or known)[-1:])

    def _names(self) -> tuple[Address, ...]:
        found: set[Address] = set()
        for event in self.egress.lookups:
            host, port = event.fields["to"]
            destination = _plain_or_none((str(host), int(port)))
            if destination is not None:
                found.add(destination)
        return tuple(sorted(found))

    # -- calls -----------------------------------------------------------------------------------------------------------

    def calls(self) -> list[Call]:
        """All that are known, in the order of time."""
        known = [call for spoken in self._spoken for call in spoken.calls]
        if self._until_ns is not None:
            known = [call for call in known if call.asked_mono_ns <= self._until_ns]
        return sorted(known, key=lambda call: (call.asked_mono_ns, call.dialogue, call.index))

    def _may_be_given(self, call: Call, held: dict[int, Resume]) -> bool:
        where = held.get(call.dialogue)
        return call.up[1] > where.up if where is not None else call.asked_mono_ns > self.egress.taken_ns

    def _troubles(self) -> list[str]:
        notes = []
        headless = sum(bool(one.dialogue.pieces) and not _has_beginning(one.dialogue) for one in self._spoken)
        if headless:
            notes.append(
                f"of {headless} connections the beginning is not recorded any more; they answer nothing"
            )
        closed = sum(one.dialogue.tls is Tls.CLOSED for one in self._spoken)
        if closed:
            notes.append(f"{closed} connections were encrypted, and what was said on them is not known")
        if self.egress.left_out:
            notes.append(
                f"{self.egress.left_out} events of what the service said to others were too many to be kept"
            )
        if self.egress.damage:
            notes.append(f"what the service said to others cannot be read to its end: {self.egress.damage}")
        return notes


def _where(dialogue: Dialogue, position: Position) -> Resume | str:
    """Where the connection stood in a dialogue; or why it is not that one, or cannot go on."""
    if dialogue.tls is not None:
        return "it is encrypted, with keys that only the service has"
    up, down = dialogue.place(Way.UP, position.up), dialogue.place(Way.DOWN, position.down)
    if up is None or down is None:
        return "its TCP sequence numbers were not recorded"
    if dialogue.pieces and not _has_beginning(dialogue):
        return "its beginning is not recorded any more"
    if up > _kept(dialogue, Way.UP) or down > _kept(dialogue, Way.DOWN):
        return "what was said on it was not kept up to the commit"
    return Resume(dialogue, up, down)


def _kept(dialogue: Dialogue, way: Way) -> int:
    """How much of a direction is kept from its beginning on."""
    place = 0
    for piece in dialogue.pieces:
        if piece.way is way and piece.at == place:
            place += len(piece.data)
    return place


def _has_beginning(dialogue: Dialogue) -> bool:
    """Something was said, and retention has not dropped where it began."""
    firsts = {piece.way: piece.at for piece in reversed(dialogue.pieces)}
    return bool(firsts) and not any(firsts.values())


def _door(dialogue: Dialogue) -> Door:
    if dialogue.error is None:
        return Door.OPEN
    return Door.SILENT if dialogue.error in _SILENT_ERRORS else Door.REFUSES


def _spoken_there(there: Sequence[_Spoken]) -> Dialogue:
    """The last dialogue in which anything was said, if one is."""
    said = [one for one in there if one.dialogue.pieces]
    return (said or list(there))[-1].dialogue


def _plain(address: Address) -> Address:
    return plain_address(address[0]), address[1]


def _plain_or_none(address: Address) -> Address | None:
    try:
        parsed = ipaddress.ip_address(address[0])
    except ValueError:
        return None
    usable = not (parsed.is_unspecified or parsed.is_multicast) and 0 < address[1] < 65536
    return _plain(address) if usable else None


def _shortened(notes: list[str]) -> list[str]:
    if len(notes) <= _MOST_NOTES:
        return notes
    return [*notes[:_MOST_NOTES], f"{len(notes) - _MOST_NOTES} more connections are closed in the branch"]
