"""Sending again what clients had said that was not HTTP/1, into a branch.

Nothing is known of the protocol, so nothing is framed: each piece is sent when the service has said, on all such connections, as
many bytes as it had said before the piece was recorded. A client may have known all of them, and can have known no more. Where the
branch says less than the recording has, the wait for the rest is given up after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass

from relive.recording.connections import Connections, Conversation, Said, Turn, TurnKind
from relive.replay.hanging_up import hang_up

__all__ = ["ConversationSender", "Conversed", "conversed_words"]

_READ = 1 << 16  # [bytes]
_SEND_LIMIT = 30.0  # [s] that the service may take to read one piece
_TOLD = 3  # differences
_PATIENCE, _SLOWER = (
    1.0,
    3.0,
)  # [s] and times the recorded time, that something the service had said is waited for


@dataclass(frozen=True, slots=True)
class Conversed:
    """What came of it.

    Attributes:
        connections: that were spoken on.
        turns: pieces that were sent.
        unsent: pieces that could not be: the service did not take the connection, had closed it, or read no more.
        unbegun: of these, pieces on connections whose beginning is not recorded, and which the commit does not hold.
        different: connections on which the service said something else than recorded, with the place in bytes of the first
            difference since the commit.
        lingered: the last piece was sent, which nothing had answered in the recording, and an answer, or the end, was waited for.
    """

    connections: int = 0
    turns: int = 0
    unsent: int = 0
    unbegun: int = 0
    different: tuple[tuple[int, int], ...] = ()
    lingered: bool = False


def conversed_words(what: Conversed) -> list[str]:
    """What a verdict says of it; nothing where no client spoke anything but HTTP/1."""
    if not (what.turns or what.unsent):
        return []
    where = "1 connection" if what.connections == 1 else f"{what.connections} connections"
    pieces = "1 message that is" if what.turns == 1 else f"{what.turns} messages that are"
    were = "was" if what.turns == 1 else "were"
    words = [f"{pieces} not HTTP/1 {were} sent again on {where} of clients"]
    if what.unsent > what.unbegun:
        words.append(f"{what.unsent - what.unbegun} could not be sent: the service took or read no more")
    if what.unbegun:
        words.append(f"{what.unbegun} could not be sent: how their connection began is not recorded")
    for number, at in what.different[:_TOLD]:
        words.append(
            f"connection {number} of a client was answered otherwise than recorded, from byte {at} on"
        )
    if len(what.different) > _TOLD:
        words.append(f"{len(what.different) - _TOLD} more were answered otherwise")
    return words


class _Heard:
    """How far the service has come with all that it had said, in that order.

    Where it has said less once on a connection, its answers there may have other lengths from then on: so anything that it says
    counts as the next, and a replay does not wait at each.
    """

    def __init__(self, said: Sequence[Said]) -> None:
        self._said = said
        self._at = 0
        self._bytes: dict[int, int] = {}
        self._counted: dict[int, int] = {}  # bytes of what it has said, as the recording counts
        self._differs: set[int] = set()
        self._over: set[int] = set()
        self._changed = asyncio.Event()

    def hear(self, connection: int, count: int) -> None:
        """It said so many bytes more."""
        self._bytes[connection] = self._bytes.get(connection, 0) + count
        self._changed.set()

    def end(self, connection: int) -> None:
        """It says no more on it."""
        self._over.add(connection)
        self._changed.set()

    async def wait_for(self, count: int) -> None:
        """Until it has said the first ``count`` of them, or does not."""
        while self._at < count:
            one = self._said[self._at]
            if self._has_said(one):
                self._count(one)
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(_PATIENCE + _SLOWER * one.seconds):
                    await self._changed.wait()
            except TimeoutError:
                if not self._has_said(one):  # on a busy machine the time may be over when it is heard
                    self._differs.add(one.connection)
                    self._count(one)

    async def wait_for_more(self, connection: int) -> None:
        """Until it has said something on that beyond all that is known."""
        while self._bytes.get(connection, 0) <= self._counted.get(connection, 0):
            self._changed.clear()
            await self._changed.wait()

    def _has_said(self, one: Said) -> bool:
        heard = self._bytes.get(one.connection, 0)
        is_enough = heard >= one.total or one.connection in self._over
        return is_enough or (one.connection in self._differs and heard > self._counted.get(one.connection, 0))

    def _count(self, one: Said) -> None:
        """It has said this, or will not: what it says from now on is what follows."""
        self._at += 1
        self._bytes[one.connection] = max(self._bytes.get(one.connection, 0), one.total)
        self._counted[one.connection] = one.total


class _Expected:
    """Compares what comes on one connection with what had come."""

    def __init__(self, found: Connections, said: Sequence[Said]) -> None:
        self._found = found
        self._said = list(reversed(said))
        self._due = b""
        self._at = 0
        self.differs_at: int | None = None
        self._is_known = True

    def compare(self, data: bytes) -> None:
        """The next bytes."""
        while data and self._is_known and self.differs_at is None:
            if not self._due and not self._next():
                return
            count = min(len(data), len(self._due))
            if data[:count] != self._due[:count]:
                pairs = zip(data, self._due, strict=False)
                self.differs_at = self._at + next(at for at, (one, other) in enumerate(pairs) if one != other)
            self._at += count
            data, self._due = data[count:], self._due[count:]

    def _next(self) -> bool:
        """What the branch says behind all that was recorded is no difference: the recording ends with the failure."""
        if not self._said:
            return False
        one = self._said.pop()
        self._due = self._found.bytes_of(one)
        self._is_known = not one.cut
        return bool(self._due)


class ConversationSender:
    """Carries out the turns of one plan, in one event loop.

    Args:
        connect: makes a connection to the service; raises OSError, TimeoutError.
        forged: client ends of the commit's connections, by port; what is used of them is taken out.
        upgraded: waits for the answer to a request that asks for an upgrade, and gives its socket and what came behind that
            answer; raises OSError where it was not granted.
        wait_until: waits until a moment of the recording (monotonic [ns]) has come.
    """

    def __init__(
        self,
        found: Connections,
        connect: Callable[[], Awaitable[socket.socket]],
        forged: MutableMapping[int, socket.socket],
        upgraded: Callable[[int], Awaitable[tuple[socket.socket, bytes]]],
        wait_until: Callable[[int], Awaitable[None]],
    ) -> None:
        self._found = found
        self._has_lingered = False
        self._connect = connect
        self._forged = forged
        self._upgraded = upgraded
        self._wait_until = wait_until
        self._sockets: dict[int, socket.socket | None] = {}
        self._readers: dict[int, asyncio.Task[None]] = {}
        self._expected: dict[int, _Expected] = {}
        self._heard = _Heard(found.said)
        self._said: dict[int, list[Said]] = {}
        for one in found.said:
            self._said.setdefault(one.connection, []).append(one)
        self._sent = self._unsent = self._unbegun = 0

    async def carry_out(self) -> None:
        """Send everything, and hear the answers to it."""
        for conversation in self._found.conversations.values():
            self._continue(conversation)
        for turn in self._found.turns:
            await self._wait_until(turn.mono_ns)
            await self._heard.wait_for(turn.after)
            await self._take(turn)
        await self._heard.wait_for(len(self._found.said))

    async def linger(self, died: asyncio.Event, seconds: float) -> None:
        """Wait for the service's answer to the last piece, or its end, where nothing had answered that in the recording.

        It may be what the service failed of, which had its client then. ``carry_out`` comes before.
        """
        last = self._found.turns[-1] if self._found.turns else None
        if last is None or last.kind is not TurnKind.SENT:
            return
        if any(one.connection == last.connection for one in self._found.said[last.after :]):
            return
        self._has_lingered = True
        ends = [
            asyncio.create_task(died.wait()),
            asyncio.create_task(self._heard.wait_for_more(last.connection)),
        ]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()

    def result(self) -> Conversed:
        """What has come of it so far."""
        different = ((number, one.differs_at) for number, one in sorted(self._expected.items()))
        return Conversed(
            sum(sock is not None for sock in self._sockets.values()),
            self._sent,
            self._unsent,
            self._unbegun,
            tuple((number, at) for number, at in different if at is not None),
            self._has_lingered,
        )

    def close(self) -> None:
        """End all connections."""
        for reader in self._readers.values():
            reader.cancel()
        for sock in self._sockets.values():
            if sock is not None:
                sock.close()

    async def _take(self, turn: Turn) -> None:
        if turn.kind is TurnKind.CLOSED:
            self._hang_up(turn.connection)
            return
        sock = await self._socket(self._found.conversations[turn.connection])
        if turn.kind is TurnKind.OPENED:
            return
        try:
            if sock is None:
                raise ConnectionRefusedError
            if turn.kind is TurnKind.ENDED:
                sock.shutdown(socket.SHUT_WR)
            else:
                data = self._found.bytes_of(turn)
                async with asyncio.timeout(_SEND_LIMIT):
                    await asyncio.get_running_loop().sock_sendall(sock, data)
                self._sent += 1
        except OSError:  # TimeoutError is one
            self._unsent += turn.kind is TurnKind.SENT
            if sock is None and self._found.conversations[turn.connection].from_middle:
                self._unbegun += turn.kind is TurnKind.SENT

    def _hang_up(self, connection: int) -> None:
        sock = self._sockets.get(connection)
        if sock is not None:
            self._readers.pop(connection).cancel()
            hang_up(sock)
            self._heard.end(connection)

    async def _socket(self, conversation: Conversation) -> socket.socket | None:
        number = conversation.connection
        if number not in self._sockets:
            try:
                if conversation.request is None and conversation.from_middle:
                    raise ConnectionRefusedError
                if conversation.request is None:
                    self._open(number, await self._connect())
                else:
                    self._open(number, *await self._upgraded(conversation.request))
            except OSError:
                self._sockets[number] = None
                self._heard.end(number)
        return self._sockets[number]

    def _continue(self, conversation: Conversation) -> None:
        """Go on with one that the commit holds."""
        if conversation.request is not None:
            return
        sock = self._forged.pop(conversation.local_port or 0, None)
        if sock is not None:
            self._open(conversation.connection, sock)

    def _open(self, number: int, sock: socket.socket, heard: bytes = b"") -> None:
        self._sockets[number] = sock
        self._expected[number] = _Expected(self._found, self._said.get(number, ()))
        self._readers[number] = asyncio.create_task(self._read(number, sock, heard))

    async def _read(self, number: int, sock: socket.socket, heard: bytes) -> None:
        self._expected[number].compare(heard)
        self._heard.hear(number, len(heard))
        with contextlib.suppress(OSError):
            while data := await asyncio.get_running_loop().sock_recv(sock, _READ):
                self._expected[number].compare(data)
                self._heard.hear(number, len(data))
        self._heard.end(number)
