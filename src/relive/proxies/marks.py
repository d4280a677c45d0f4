"""What the capsule's border and the recorder at it have agreed on: where packets wait, and the marks that say where they may go.

``relive.sandbox.capsule_network`` makes the rules, ``recorder`` gives the marks. A mark lives as long as its packet and is seen
by the capsule's network alone.
"""

from __future__ import annotations

import errno

__all__ = ["ENTRANCE", "QUEUE", "REFUSALS", "Mark", "mark_for"]

from enum import IntEnum

QUEUE = 0
"""Number of the netfilter queue in which connections that begin, and datagrams, wait."""

ENTRANCE = 1
"""Port of the loopback address at which the recorder takes connections in: one that no service uses (RFC 1078)."""


class Mark(IntEnum):
    """``skb->mark`` of a packet."""

    RECORDED = 0x52450001  # goes to the recorder's entrance
    OWN = 0x52450002  # the recorder's or the proxy's own: it stays in the capsule's network
    REFUSED = 0x52450010  # answered as by a host on which nobody listens
    NO_NETWORK = 0x52450011
    NO_HOST = 0x52450012
    FORBIDDEN = 0x52450013


REFUSALS = {
    errno.ECONNREFUSED: Mark.REFUSED,
    errno.ENETUNREACH: Mark.NO_NETWORK,
    errno.EHOSTUNREACH: Mark.NO_HOST,
}


def mark_for(error: int) -> Mark:
    """The mark with which ``connect`` fails in the service as it did at the border, or with EHOSTUNREACH."""
    return REFUSALS.get(error, Mark.FORBIDDEN)
