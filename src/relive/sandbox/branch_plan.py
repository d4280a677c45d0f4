"""What a branch is made by: read from the commit's images, before CRIU is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from relive.images.sockets import TcpConnection
from relive.model.commit import Outlet
from relive.sandbox.endpoints import Outside
from relive.sandbox.lazy.pager import Pager
from relive.sandbox.remembered_numbers import Remembered

__all__ = ["BranchPlan"]


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """What has to be known of the images, which are laid out by then, before CRIU can be asked.

    Attributes:
        addresses: addresses that must be local.
        devices: names of network devices that sockets are bound to.
        outside_names: unix datagram sockets that somebody has to listen at, such as a system log's.
        connections: established connections to forge the other ends of; inward[i] tells whether the i-th is a client's.
        answered: ports of clients that had taken all that the service had sent them.
        closes_clients: the other ends of clients' connections are closed once the service runs, as when the clients crash.
        inner_pairs: ports of both ends of connections within the commit that carry something.
        listening: where the service itself listens.
        outside: what stands for the outside.
        clock_shift_ns: what to add to the wall clock; None: leave it.
        streams: "stdout" or "stderr", by the outlets that are these.
        taken_pids: pids and thread ids that the commit holds.
        limit: seconds in which CRIU must read or write something.
        networks: what CRIU calls network namespaces of the target's own: they become the branch's.
        owner: the end for process 1 of the line by which the branch ends with whoever holds the other.
        disk_share: of what is free on the branch's disk, what may go while it lives.
        connects: given the listener at which each connect(2) in the branch asks; None: nobody is asked.
        remembered: where memory holds numbers of files that are others in the branch; known while CRIU works. None: not corrected.
        rewinds: the processes stand still when they are there; ``rewinder.start_rewinder`` has them run.
        pager: the page daemon that brings memory in once the processes run; None: all of it is there before.
    """

    addresses: Sequence[str]
    devices: Sequence[bytes]
    connections: Sequence[TcpConnection]
    inner_pairs: frozenset[tuple[int, int]]
    inward: list[bool]
    listening: list[tuple[str, int]]
    outlets: list[Outlet]
    outside_names: Sequence[bytes]
    clock_shift_ns: int | None
    hostname: str
    taken_pids: frozenset[int]
    limit: float
    owner: int
    disk_share: float
    remembered: Future[Sequence[Remembered]] | None = None
    rewinds: bool = False
    pager: Pager | None = None
    outside: Outside = field(default_factory=Outside)
    answered: frozenset[int] = frozenset()
    closes_clients: bool = False
    connects: Callable[[int], None] | None = None
    networks: Sequence[str] = ()
    streams: Mapping[str, str] = field(default_factory=dict)
