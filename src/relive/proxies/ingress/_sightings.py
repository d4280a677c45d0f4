"""All connections of a port as their packets show them: which segment belongs to which, and what a commit had of each."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from relive.proxies.ingress._observed import ObservedConnection
from relive.proxies.ingress._observed_traffic import ObservedTraffic
from relive.proxies.ingress._segments import ACK, SYN, Ends, Segment
from relive.proxies.ingress._sights import Sights, Verdict

__all__ = ["ConnectionTable", "Crossed", "read_crossed"]

Crossed = Mapping[Ends, tuple[int, int]]
"""Of each connection that a commit has: TCP sequence numbers of the first bytes of client and service that it has not."""


def read_crossed(listed: object) -> dict[Ends, tuple[int, int]]:
    """What an agent says of it: lists of the client's address, its port, the service's address, and the numbers.

    Raises:
        ValueError, TypeError: it is nothing of the kind.
    """
    if not isinstance(listed, list):
        raise TypeError("no list")
    return {
        Ends(_packed(client), int(port), _packed(service)): (int(next_up), int(next_down))
        for client, port, service, next_up, next_down in listed
    }


def _first(numbers: tuple[int, int] | None) -> int | None:
    return numbers[0] if numbers is not None else None


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


class ConnectionTable:
    """Takes segments in the order in which the kernel saw them.

    Args:
        address: of the service, packed; None: it listens at all of them.
        sights: follow each connection until something comes that they give away. None: all are followed here.
    """

    def __init__(self, traffic: ObservedTraffic, address: bytes | None, sights: Sights | None) -> None:
        self._traffic = traffic
        self._address = address
        self._sights = sights
        self._known: dict[Ends, ObservedConnection] = {}
        self._limits: Crossed | None = None

    @property
    def count(self) -> int:
        """Connections of which something is known."""
        theirs = self._sights.counts().connections if self._sights is not None else 0
        return theirs + sum(1 for one in self._known.values() if one.is_known)

    @property
    def gaps(self) -> int:
        """Places at which packets are missing."""
        return self._traffic.gaps + (self._sights.counts().gaps if self._sights is not None else 0)

    def observe(self, segment: Segment) -> None:
        """Take the next one."""
        if self._address is not None and segment.ends.service != self._address:
            return
        self._traffic.observed.see(segment.wall_ns)
        known = self._known.get(segment.ends)
        if known is not None and segment.flags & SYN and segment.from_client and known.began_with(segment):
            known.lose()  # the end of the one before was not seen
            self._drop(known)
            known = None
        if known is None:
            self._observe_afresh(segment)
        elif not known.observe(segment):
            self._give_up(known)
            self._observe_afresh(segment)
        elif known.is_over:
            self._drop(known)
        else:
            self._give_back(known)

    def observe_given(self, verdict: Verdict, segment: Segment) -> None:
        """Take one at which the sights have stopped: it is of a connection that is not theirs, or not any more."""
        if verdict is Verdict.FOREIGN and segment.ends in self._known:
            self.observe(segment)
            return
        self._traffic.observed.see(segment.wall_ns)
        if verdict in (Verdict.FOREIGN, Verdict.STOOD):
            self._observe_here(segment, stood=verdict is Verdict.STOOD)
        elif verdict is Verdict.HANDED:
            self._adopt(segment)

    def _observe_afresh(self, segment: Segment) -> None:
        """Take one of a connection of which nothing is known."""
        if self._sights is None:
            self._observe_here(segment)
        else:
            self.observe_given(self._sights.observe(segment), segment)

    def _observe_here(self, segment: Segment, *, stood: bool = False) -> None:
        """``stood``: it is what the client says to all that the service has said on a connection that stood before."""
        known = self._begin(segment.ends)
        self._know(known, told_until=segment.acknowledged if stood else None)
        if not known.observe(segment):
            self._give_up(known)
            known = self._begin(segment.ends)
            known.observe(segment)
        if known.is_over:
            self._drop(known)
        elif stood and not known.is_known and self._sights is not None:
            del self._known[segment.ends]
            self._sights.refuse(segment.ends)

    def _know(self, one: ObservedConnection, *, told_until: int | None) -> None:
        if self._sights is not None:
            has_missed, tells_http = self._sights.unknown(one.ends)
            one.know(has_missed=has_missed, tells_http=tells_http, told_until=told_until)

    def _adopt(self, segment: Segment | None) -> None:
        """Go on with what the sights have given away: one connection in the middle of a segment, or any number between two."""
        assert self._sights is not None
        for handed in self._sights.handed():
            made = self._known[handed.ends] = ObservedConnection(self._traffic, handed.ends)
            made.adopt(handed)
            self._know(made, told_until=None)
            if not made.go_on(handed, segment):
                self._give_up(made)
                if segment is not None:
                    self._observe_afresh(segment)
            elif made.is_over:
                self._drop(made)

    def lose(self, packets: int) -> None:
        """So many packets are missing here, of whatever connections."""
        text = f"{packets} packets were lost: more came than could be taken"
        self._traffic.note_gap(0, text, packets)
        if self._sights is not None:
            self._sights.lose()
        for one in list(self._known.values()):
            if one.is_busy:
                one.lose()
                self._drop(one)

    # A commit

    def limit(self, crossed: Crossed) -> None:
        """From here on nothing is said of what the commit that is being placed does not have."""
        self._limits = crossed
        if self._sights is not None:
            self._sights.limit(crossed)
        for ends, one in self._known.items():
            one.limit(_first(crossed.get(ends)))

    def unlimit(self) -> None:
        """The commit has its place: go on with what waited."""
        self._limits = None
        here = list(self._known.values())
        if self._sights is not None:
            self._sights.unlimit()
            self._adopt(None)
        for one in here:
            if not one.release_beyond():
                self._give_up(one)
            elif one.is_over:
                self._drop(one)

    def observe_written(self, segment: Segment) -> bool:
        """Take a segment that came after the commit, if it is of the service, and the commit has all of it; else False."""
        known, limits = self._known.get(segment.ends), (self._limits or {}).get(segment.ends)
        if known is not None:
            is_written = limits is not None and known.is_written(segment, limits[1])
        else:
            is_written = self._sights is not None and self._sights.is_written(segment)
        if not is_written:
            return False
        self.observe(segment._replace(flags=segment.flags & ~ACK))  # of what it acknowledges some waits
        return True

    def open_requests(self) -> list[dict[str, Any]]:
        """The oldest request of each connection whose answer is not whole."""
        theirs = self._sights.open_requests() if self._sights is not None else []
        return theirs + [found for one in self._known.values() for found in one.open_requests()]

    def _begin(self, ends: Ends) -> ObservedConnection:
        made = self._known[ends] = ObservedConnection(self._traffic, ends)
        if self._limits is not None:
            made.limit(_first(self._limits.get(ends)))
        return made

    def _give_up(self, one: ObservedConnection) -> None:
        rest = ": it speaks HTTP/2, so nothing more of it can be read" if one.is_http2 else ""
        self._traffic.note_gap(one.number, f"packets of a connection are missing{rest}")
        one.lose()
        self._drop(one)

    def _give_back(self, one: ObservedConnection) -> None:
        """What was for Python is over: the sights follow it again."""
        if self._sights is not None and self._limits is None and (plain := one.plainness) is not None:
            del self._known[one.ends]
            self._sights.take_back(one.ends, plain)

    def _drop(self, one: ObservedConnection) -> None:
        self._known.pop(one.ends, None)
        if self._sights is not None:
            self._sights.forget(one.ends)
