"""What tracer and agent say to each other: one JSON object a line over a socket pair, told apart by ``op``.

Commands, each answered by exactly one reply, in order; ``error`` {code, message, cause, remedy} may stand for
any reply:

    attach {root}   ->  attached {tasks, held, skipped: [{pid, tracer, reason}]}
    detach          ->  detached {held}
    release         ->  released {died, tasks}

Events, at any time between replies:

    fatal   {pid, tid, signal, name, code, code_name, address, sender, comm, stopped, kept}
    exit    {pid, status, comm, inside, seconds, parent}
    lost    {exits}

A process that was traced before ``detach`` or ``fatal`` and has ended when tracing goes on gets an ``exit`` too.

``held`` says that a process stands stopped after a ``fatal``, so that ``release`` is due before tracing goes
on. An unknown field is to be ignored; fields may be added, never changed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from relive.errors import ReliveError

__all__ = ["Event", "EventsLost", "Exited", "Fatal", "TracerChannel", "parse_event"]

Message = dict[str, Any]

_READ_SIZE = 65536  # [bytes]
_MAX_UNSENT = 1 << 20  # [bytes] beyond this, events that may be lost are


@dataclass(frozen=True, slots=True)
class Fatal:
    """A process is about to die of a signal. It stands stopped (state T), untraced, ready to be committed.

    Attributes:
        pid, tid: process and thread, numbered as the tracer sees them.
        signal, name: 11, ``SIGSEGV``.
        code, code_name: si_code: 1, ``SEGV_MAPERR``.
        address: of the fault; None where the kernel gives none.
        sender: process that sent the signal, numbered as in the receiver's own PID namespace (0: it lies
            outside).
        comm: name of the thread.
        stopped: False when some thread did not stop within the limit (uninterruptible sleep): a commit will
            likely fail.
        kept: r15, r14, r13, r12, rbp and rbx of the thread, from which its calls can be found; empty where nobody read them.
    """

    op: ClassVar[str] = "fatal"
    pid: int
    tid: int
    signal: int
    name: str
    code: int
    code_name: str
    address: int | None
    sender: int | None
    comm: str
    stopped: bool = True
    kept: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Exited:
    """A traced process has ended; its parent learns of it right after this.

    Attributes:
        status: raw, as from waitpid(2); for ``os.waitstatus_to_exitcode``. None: it ended while nobody traced it, and the kernel
            does not tell how.
        comm, inside: its name, and its number in its own PID namespace; None where it exited with 0 while traced, or is gone.
        seconds: how long it had lived; 0.0 where ``comm`` is None.
        parent: as the tracer sees it; None where ``comm`` is None.
    """

    op: ClassVar[str] = "exit"
    pid: int
    status: int | None
    comm: str | None = None
    inside: int | None = None
    seconds: float = 0.0
    parent: int | None = None

    @property
    def signal(self) -> int | None:
        """The signal it died of, or None when it exited by itself or nobody knows."""
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None


@dataclass(frozen=True, slots=True)
class EventsLost:
    """The agent did not read for so long that ``exits`` exit events were dropped; fatal ones never are."""

    op: ClassVar[str] = "lost"
    exits: int


Event = Fatal | Exited | EventsLost
_EVENTS: Mapping[str, type[Fatal] | type[Exited] | type[EventsLost]] = {
    kind.op: kind for kind in (Fatal, Exited, EventsLost)
}


def parse_event(message: Message) -> Event | None:
    """The event in a message, or None when it is a reply."""
    kind = _EVENTS.get(str(message.get("op")))
    if kind is None:
        return None
    return kind(**{field.name: message[field.name] for field in fields(kind) if field.name in message})


class TracerChannel:
    """The tracer's end of the socket pair. Nothing blocks: a tracer that waits for its agent stops the service.

    Attributes:
        closed: the agent is gone; what is sent from now on is dropped.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._incoming = b""
        self._outgoing = bytearray()
        self._exits_lost = 0
        self.closed = False

    def fileno(self) -> int:
        """For poll(2)."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """``flush`` should be called when the socket takes more."""
        return bool(self._outgoing)

    def reply(self, op: str, **fields: object) -> None:
        """Send a reply."""
        self._queue({"op": op, **fields})

    def error(self, error: ReliveError) -> None:
        """Send an error in place of a reply."""
        self.reply("error", **error.as_json())

    def event(self, event: Event) -> None:
        """Send an event. Exits are thrown away and counted while the agent does not read."""
        if isinstance(event, Exited) and len(self._outgoing) > _MAX_UNSENT:
            self._exits_lost += 1
            return
        self._queue({"op": event.op, **asdict(event)})

    def flush(self) -> None:
        """Hand as much to the socket as it takes now."""
        while self._outgoing and not self.closed:
            try:
                sent = self._socket.send(self._outgoing)
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            del self._outgoing[:sent]
            if not self._outgoing and self._exits_lost:
                lost, self._exits_lost = EventsLost(self._exits_lost), 0
                self.event(lost)

    def receive(self) -> list[Message]:
        """The commands that have come in whole; sets ``closed`` at the end of the stream.

        Raises:
            ValueError: a line is no JSON object with an ``op``.
        """
        while True:
            try:
                data = self._socket.recv(_READ_SIZE)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._incoming += data
        *lines, self._incoming = self._incoming.split(b"\n")
        return [_parse_line(line) for line in lines]

    def _queue(self, message: Message) -> None:
        self._outgoing += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()


def _parse_line(line: bytes) -> Message:
    message = json.loads(line)
    if not isinstance(message, dict) or "op" not in message:
        raise ValueError(f"not a command: {line[:80]!r}")
    return message
