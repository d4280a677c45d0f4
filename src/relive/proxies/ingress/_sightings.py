"""All connections of a port as their packets show them: which segment belongs to which, and what a commit had of each."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from relive.proxies.ingress._observed import ObservedConnection, ObservedTraffic
from relive.proxies.ingress._segments import ACK, SYN, Ends, Segment

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
    """

    def __init__(self, traffic: ObservedTraffic, address: bytes | None) -> None:
        self._traffic = traffic
        self._address = address
        self._known: dict[Ends, ObservedConnection] = {}
        self._limits: Crossed | None = None

    @property
    def count(self) -> int:
        """Connections of which something is known."""
        return sum(1 for one in self._known.values() if one.is_known)

    def observe(self, segment: Segment) -> None:
        """Take the next one."""
        if self._address is not None and segment.ends.service != self._address:
            return
        self._traffic.observed.see(segment.wall_ns)
        known = self._known.get(segment.ends)
        if known is not None and segment.flags & SYN and segment.from_client and known.began_with(segment):
            known.lose()  # the end of the one before was not seen
            known = None
        if known is None:
            known = self._begin(segment.ends)
        if not known.observe(segment):
            self._give_up(known, "packets of a connection are missing")
            known = self._begin(segment.ends)
            known.observe(segment)
        if known.is_over:
            self._known.pop(segment.ends, None)

    def lose(self, packets: int) -> None:
        """So many packets are missing here, of whatever connections."""
        text = f"{packets} packets were lost: more came than could be taken"
        self._traffic.note_gap(0, text, packets)
        for one in list(self._known.values()):
            if one.is_busy:
                one.lose()
                del self._known[one.ends]

    # A commit

    def limit(self, crossed: Crossed) -> None:
        """From here on nothing is said of what the commit that is being placed does not have."""
        self._limits = crossed
        for ends, one in self._known.items():
            one.limit(_first(crossed.get(ends)))

    def unlimit(self) -> None:
        """The commit has its place: go on with what waited."""
        self._limits = None
        for one in list(self._known.values()):
            if not one.release_beyond():
                self._give_up(one, "packets of a connection are missing")
            elif one.is_over:
                self._known.pop(one.ends, None)

    def observe_written(self, segment: Segment) -> bool:
        """Take a segment that came after the commit, if it is of the service, and the commit has all of it; else False."""
        known, limits = self._known.get(segment.ends), (self._limits or {}).get(segment.ends)
        if known is None or limits is None or not known.is_written(segment, limits[1]):
            return False
        self.observe(segment._replace(flags=segment.flags & ~ACK))  # of what it acknowledges some waits
        return True

    def open_requests(self) -> list[dict[str, Any]]:
        """The oldest request of each connection whose answer is not whole."""
        return [
            {"connection": one.number, "local_port": one.local_port, "request": one.flights[0].number}
            for one in self._known.values()
            if one.flights
        ]

    def _begin(self, ends: Ends) -> ObservedConnection:
        made = self._known[ends] = ObservedConnection(self._traffic, ends)
        if self._limits is not None:
            made.limit(_first(self._limits.get(ends)))
        return made

    def _give_up(self, one: ObservedConnection, why: str) -> None:
        self._traffic.note_gap(one.number, why)
        one.lose()
        self._known.pop(one.ends, None)
