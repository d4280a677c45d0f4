"""What is asked of a restore, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relive.checkpoint.criu_template import CriuTemplate
from relive.images.sockets import TcpConnection
from relive.model.branch import Clients, Clock
from relive.recording.rings import RingMode
from relive.sandbox.endpoints import Outside

__all__ = ["RestoreRequest"]


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """How a commit shall come to life.

    Attributes:
        name: of the branch; None: that of the service.
        lazily: let it run before its memory is all there, which a page daemon then brings in. A commit of which nothing
            can come later is restored as ever. No other thread of the caller may be at work then (see ``Pager``).
        is_owned: the branch shall end with this process, however that ends, unless ``outlive_caller`` is called.
        recorder: what the recorder in its Python processes does in the branch.
        lay_beside: called with the directory of the branch's rings, when these are in it and nothing runs yet.
        outside: told the connections that the commit's processes had opened themselves; says what shall stand for the
            outside, to be found in ``ends`` of the branch. Without it these connections are closed, and nobody is there.
        answered: ports of clients that had taken all that the service sent them, so that their ends shall not get any of it
            again.
        clients: what becomes of connections that clients had to it over TCP.
        connects: given the listener at which each connect(2) in the branch asks (``kernel.connects``), before one does; it has
            to answer until the branch has ended. Not called where there can be none: an old kernel, or a filter of the
            service's own that CRIU would fall over.
        template: of this commit, with which the branch shares its memory (``CriuTemplate``); not with ``lazily``, nor ``connects``.
        rewinds: keep beside it what it is before it runs, where that can be, to put it back in place (``sandbox.rewinder``); not
            with ``lazily``.
    """

    clock: Clock = Clock.RECORDED
    name: str | None = None
    lazily: bool = False
    is_owned: bool = False
    recorder: RingMode = RingMode.FREE
    lay_beside: Callable[[Path], None] | None = None
    outside: Callable[[list[TcpConnection]], Outside] | None = None
    answered: frozenset[int] = frozenset()
    clients: Clients = Clients.KEEP
    connects: Callable[[int], None] | None = None
    template: CriuTemplate | None = None
    rewinds: bool = False
