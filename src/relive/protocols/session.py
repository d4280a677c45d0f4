"""What a protocol has to be able to do: recognise itself, tell the calls of a dialogue, and answer a restored service.

A *session* is one live connection of a restored service. It is pure: it is fed what the service sends and returns what has to
be done, with the pauses to be kept; whoever owns the socket does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from relive.protocols.call import Call
from relive.protocols.pool import Pool
from relive.recording.dialogues import Dialogue

__all__ = ["NOWHERE", "Act", "Close", "Protocol", "Reset", "Resume", "Send", "Session"]


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes, so long after what was done before on this connection (or after what was fed).

    Attributes:
        unasked: it comes of itself, as a notification does: should the service say something before, it is not waited for longer.
    """

    data: bytes
    after_ns: int = 0
    unasked: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection as one does. ``unasked`` as in ``Send``."""

    after_ns: int = 0
    unasked: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection: the service sees ECONNRESET. ``unasked`` as in ``Send``."""

    after_ns: int = 0
    unasked: bool = False


Act = Send | Close | Reset
NOWHERE = ("", 0)  # where what is said does not depend on whom it is said to


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a connection stood that the commit holds.

    Attributes:
        up: place of the first byte that the service will send (again); all before it has reached the other end.
        down: place of the first byte that the service does not have.
    """

    dialogue: Dialogue
    up: int
    down: int


class Session(ABC):
    """One connection. Acts are carried out in the order in which they are returned, over calls too."""

    def begin(self) -> list[Act]:
        """What the other end says first, unasked, on a new connection: called once, when the service has connected."""
        return []

    @abstractmethod
    def feed(self, data: bytes) -> list[Act]:
        """The service sent this. It may be any part of a message, or several."""

    @abstractmethod
    def hang_up(self) -> list[Act]:
        """The service has closed its direction."""


class Protocol(ABC):
    """One protocol.

    Attributes:
        name: as shown, and as options name it: "http", "redis", "postgresql", "s3", "bytes".
    """

    name: ClassVar[str]

    @abstractmethod
    def recognises(self, dialogue: Dialogue) -> bool:
        """Whether this is said in it. Looks at the first bytes of both directions; the port may decide a doubt."""

    @abstractmethod
    def calls(self, dialogue: Dialogue) -> list[Call]:
        """All calls of a dialogue in the order in which they were asked.

        Never raises for what was said: where it stops making sense, a last call of kind DIALOGUE_UP holds the rest as bytes.
        """

    @abstractmethod
    def open(self, pool: Pool, number: int, *, to: tuple[str, int] = NOWHERE) -> Session:
        """A new connection; ``number`` names it in what the pool reports; ``to`` is the (address, port) that was asked for."""

    @abstractmethod
    def resume(self, pool: Pool, number: int, where: Resume) -> tuple[Session, list[Act]]:
        """A connection that the commit holds, with what has to be done first: the rest of an answer that was under way.

        What had been asked but not been answered at that moment is answered now, as it was then.
        """
