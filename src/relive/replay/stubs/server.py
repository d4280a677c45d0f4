"""The stubs of one branch: all sockets that stand for the outside, in one event loop.

Hostile or broken services are bounded: so many connections at a time, so many bytes waiting on each, so many misses told.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections import Counter, OrderedDict
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relive.kernel.handshakes import Handshake, read_handshake
from relive.kernel.namespaces import in_network_of
from relive.protocols.call import Call
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.registry import ProtocolRegistry
from relive.protocols.session import Act, Session
from relive.recording.dialogues import Tls, Way
from relive.recording.events import EventKind
from relive.replay.stubs.conversation import Conversation
from relive.replay.stubs.plan import StubEndpoint, StubPlan
from relive.replay.stubs.speed import Speed
from relive.replay.stubs.transport import StubAuthority, TlsTransport, Transport
from relive.sandbox.endpoints import Address, Door, OpenedEndpoints, plain_address, set_door

__all__ = ["StubServer"]

_MOST_CONVERSATIONS = 4096
_MOST_MISSES = 100
_MOST_STRANGERS = 100
_MOST_NOTES = 20
_MOST_HANDSHAKES = 4096  # that are remembered, to know a further attempt at the same
_PACKET = 256  # [bytes]
_DATAGRAM = 65536  # [bytes]
_HTTP_2 = b"PRI * HTTP/2.0"
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # struct linger


@dataclass(slots=True)
class _Door:
    """A destination's socket and how far its attempts are used up."""

    address: Address
    sock: socket.socket
    destination: StubEndpoint
    now: Door = Door.REFUSES
    fillers: list[socket.socket] = field(default_factory=list)


class StubServer:
    """Answers one branch. For one event loop.

    Args:
        ends: of the branch; they belong to the server afterwards.
        known: the protocols, for this branch alone.
        init: host pid of the branch's process 1.
        authority: directory of what TLS was opened with; None where it was not.
        ignore: names of what may differ between a question and the recorded one.
        own_ports: where the service itself listens; who connects there is no affair of the stubs.

    Attributes:
        misses: the first hundred questions without a recorded answer, each with the destination of its connection.
        given, simulated, missed: how many questions were answered from the recording, how many with what was worked out from
            it, and how many were not.
        given_calls: (dialogue, index) of those that were answered from the recording.
        opened: how many connections were taken.
        strangers: destinations that were never recorded, with how often somebody wanted to connect to them.
        attempted: how many attempts to connect to a destination are over.
        notes: what went wrong, in sentences.
    """

    def __init__(
        self,
        plan: StubPlan,
        ends: OpenedEndpoints,
        known: ProtocolRegistry,
        *,
        init: int,
        authority: Path | None,
        speed: Speed,
        ignore: Collection[str] = (),
        own_ports: Collection[int] = (),
    ) -> None:
        self.misses: list[tuple[Address | None, PoolMatch]] = []
        self.missed = self.given = self.simulated = self.opened = 0
        self.given_calls: set[tuple[int, int]] = set()
        self.strangers: dict[Address, int] = {}
        self.attempted: Counter[Address] = Counter()
        self.notes: list[str] = []
        self._plan = plan
        self._init = init
        self._authority = authority
        self._speed = speed
        self._own_ports = frozenset(own_ports)
        self._known = known
        calls = [*plan.calls, *known.names.lookups(plan.lookups)]
        self._pool = Pool(calls, ignore=ignore, on_found=self._found)
        for call in plan.used:
            self._pool.use_up(call)
        self._numbers = itertools.count(1)
        self._destination_of: dict[int, Address] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: OrderedDict[Handshake, None] = OrderedDict()
        self._taken: OrderedDict[tuple[Address, Address], None] = OrderedDict()
        self._doors: dict[Address, _Door] = {}
        self._watches: list[socket.socket] = []
        self._continued: list[tuple[socket.socket, tuple[Address, Address]]] = []
        self._names: dict[Address, socket.socket] = {}
        self._adopt_ends(ends)

    def _adopt_ends(self, ends: OpenedEndpoints) -> None:
        for address, why in ends.untaken.items():
            self._note(f"nobody answers at {address[0]}:{address[1]}: {why}")
        self._continued = [(_own(descriptor), name) for name, descriptor in ends.continued.items()]
        fillers = [_own(descriptor) for descriptor in ends.fillers]
        for filler in fillers:
            self._taken[_name_of(filler)] = None
        for address, descriptor in ends.destinations.items():
            destination = self._plan.destinations[address]
            door = _Door(address, _own(descriptor), destination, now=destination.attempt(0).door)
            door.fillers = [one for one in fillers if _name_of(one)[1] == address]
            self._doors[address] = door
        self._watches = [_own(descriptor) for descriptor in ends.handshakes]
        self._names = {address: _own(descriptor) for address, descriptor in ends.names.items()}
        ends.continued, ends.destinations, ends.names, ends.fillers, ends.handshakes = {}, {}, {}, [], []

    def start(self) -> None:
        """Begin to answer; what the service did since it runs waits in the sockets."""
        loop = asyncio.get_running_loop()
        for sock, name in self._continued:
            where = self._plan.resumes[name]
            protocol = self._known.protocol_of(where.dialogue)
            session, first = protocol.resume(self._pool, self._number(name[1]), where)
            self._converse(Transport(sock), session, first)
        self._continued = []
        for door in self._doors.values():
            self._listen(door)
        for watch in self._watches:
            loop.add_reader(watch, self._handshakes, watch)
        for address, sock in self._names.items():
            loop.add_reader(sock, self._datagrams, sock, self._number(address))

    def left(self) -> list[Call]:
        """Calls that were recorded after the commit and not asked for, in the order of time; names may be remembered."""
        return [call for call in self._pool.left() if call.kind is not EventKind.NAME_LOOKUP]

    async def close(self) -> None:
        """End all conversations and close all sockets; what the service did before is still taken note of."""
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            self._handshakes(watch)
        doors = [door.sock for door in self._doors.values()]
        for sock in (*self._watches, *doors, *self._names.values()):
            loop.remove_reader(sock)
            sock.close()
        for door in self._doors.values():
            for filler in door.fillers:
                filler.close()
        for sock, _ in self._continued:
            sock.close()
        self._watches, self._doors, self._continued, self._names = [], {}, [], {}
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- connections -----------------------------------------------------------------------------------------------------

    def _number(self, destination: Address) -> int:
        number = next(self._numbers)
        self._destination_of[number] = destination
        return number

    def _listen(self, door: _Door) -> None:
        """Be told of who waits. A socket that is closed, or has our own filler in its queue, would tell of itself for ever."""
        if door.now is Door.OPEN:
            asyncio.get_running_loop().add_reader(door.sock, self._accept, door)

    def _accept(self, door: _Door) -> None:
        """Take whoever waits, as long as the destination takes anybody."""
        address = door.address
        while door.now is Door.OPEN:
            try:
                sock, origin = door.sock.accept()
            except OSError:  # nobody (any more)
                return
            self._remember((_plain(origin), address))
            if len(self._tasks) >= _MOST_CONVERSATIONS:
                self._note(
                    f"the service opened more than {_MOST_CONVERSATIONS} connections; the rest were reset"
                )
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
                sock.close()
                continue
            self.opened += 1
            sock.setblocking(False)
            protocol = self._known.protocol_of(door.destination.example)
            session = protocol.open(self._pool, self._number(address), to=address)
            self._converse(self._line(sock, door), session, session.begin())
            self._attempted(door)

    def _line(self, sock: socket.socket, door: _Door) -> Transport:
        example = door.destination.example
        if example.tls is not Tls.OPENED or self._authority is None:
            return Transport(sock)
        trust = StubAuthority(self._authority, speaks_http2=example.text(Way.UP, 0, len(_HTTP_2)) == _HTTP_2)
        return TlsTransport(sock, trust, door.address[0])

    def _converse(self, line: Transport, session: Session, first: list[Act]) -> None:
        # Or the second of two short answers waits until the service has acknowledged the first, which takes 40 ms.
        line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conversation = Conversation(line, session, self._speed, self._note)
        self._begin(conversation.run(first))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- name servers ----------------------------------------------------------------------------------------------------

    def _datagrams(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message, asker = sock.recvfrom(_DATAGRAM)
                said = self._known.names.answer(self._pool, number, message)
                if said is not None:
                    pause = self._speed.seconds(said.after_ns)
                    asyncio.get_running_loop().call_later(pause, _send, sock, said.data, asker)

    # -- attempts to connect ---------------------------------------------------------------------------------------------

    def _handshakes(self, watch: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                seen = read_handshake(watch.recv(_PACKET))
                if seen is not None and seen not in self._seen:
                    self._seen[seen] = None
                    if len(self._seen) > _MOST_HANDSHAKES:
                        self._seen.popitem(last=False)
                    self._saw(seen)

    def _saw(self, seen: Handshake) -> None:
        """An attempt to connect that the kernel has refused, lets wait, or has put into a queue."""
        door = self._doors.get(seen.destination)
        if door is None:
            is_own = seen.destination[1] in self._own_ports
            if not is_own and (len(self.strangers) < _MOST_STRANGERS or seen.destination in self.strangers):
                self.strangers[seen.destination] = self.strangers.get(seen.destination, 0) + 1
        elif door.now is Door.REFUSES and (seen.origin, seen.destination) not in self._taken:
            self._attempted(door)
        elif door.now is Door.SILENT and (seen.origin, seen.destination) not in self._taken:
            # It has to be silent for as long as it was: the kernel of the service goes on asking.
            took = door.destination.attempt(self.attempted[door.address]).took_ns / 1e9
            asyncio.get_running_loop().call_later(took, self._attempted, door)

    def _attempted(self, door: _Door) -> None:
        """One attempt is over; the next may end otherwise."""
        if door.sock.fileno() < 0:
            return
        now = door.destination.attempt(self.attempted[door.address] + 1).door
        if now is not door.now:
            self._change(door, now)
        self.attempted[door.address] += 1

    def _change(self, door: _Door, now: Door) -> None:
        asyncio.get_running_loop().remove_reader(door.sock)
        for filler in door.fillers:
            filler.close()
        door.fillers = []
        try:
            door.fillers = in_network_of(self._init, lambda: set_door(door.sock, now))
        except OSError as error:  # the branch has just ended
            self._note(f"a destination could not be made {now.value}: {error}")
            return
        door.now = now
        for filler in door.fillers:
            self._remember(_name_of(filler))
        self._listen(door)

    def _remember(self, name: tuple[Address, Address]) -> None:
        """Whose handshake is no attempt to be refused: it was taken, or is our own."""
        self._taken[name] = None
        if len(self._taken) > _MOST_HANDSHAKES:
            self._taken.popitem(last=False)

    # -- what is told ----------------------------------------------------------------------------------------------------

    def _found(self, found: PoolMatch) -> None:
        if found.simulated:
            self.simulated += 1
        elif found.call is not None:
            self.given += 1
            self.given_calls.add((found.call.dialogue, found.call.index))
        if not found.is_miss:
            return
        self.missed += 1
        if len(self.misses) < _MOST_MISSES:
            self.misses.append((self._destination_of.get(found.connection), found))

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(text)


def _send(sock: socket.socket, data: bytes, asker: Any) -> None:
    with contextlib.suppress(OSError):  # who asked has gone, or the branch has ended
        sock.sendto(data, asker)


def _own(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock


def _plain(address: tuple[Any, ...]) -> Address:
    return plain_address(address[0]), int(address[1])


def _name_of(filler: socket.socket) -> tuple[Address, Address]:
    return _plain(filler.getsockname()), _plain(filler.getpeername())
