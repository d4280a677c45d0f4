"""What the border of a capsule and the recorder at it have agreed on: where packets wait, and the marks that say where they may go.

``relive.sandbox.border`` makes the rules, ``recorder`` gives the marks. Each capsule has a number of its own in its network
namespace, which is part of its marks.
"""

from __future__ import annotations

import errno

__all__ = [
    "ENTRANCE",
    "NAMES",
    "NUMBERS",
    "REFUSALS",
    "Mark",
    "entrance4",
    "entrance6",
    "kind_for",
    "queue_of",
]

from enum import IntEnum

ENTRANCE = 1
"""Port at which a recorder takes connections in: one that no service uses (RFC 1078)."""

NAMES = 53
"""Port of name servers."""

_PREFIX = 0x52 << 24

NUMBERS = tuple(number for number in range(1, 256) if number not in (4, 8))
"""Numbers that a capsule may have.

Others on a host look at single bits of a mark: Kubernetes drops what has 0x8000 and translates what has 0x4000, Cilium
routes by 0xf00, Amazon's network for Kubernetes by 0x80: here those are always 0. Tailscale takes 0x40000 and 0x80000 of
0xff0000 for its own.
"""


class Mark(IntEnum):
    """The last byte of ``skb->mark``."""

    ANY = 0x00  # none has it: with its last byte left out, it stands for all marks of a capsule
    RECORDED = 0x01  # goes to the recorder
    OWN = 0x02  # the recorder's: it goes on
    CALL = 0x03  # of a socket that the service connects
    DIRECT = 0x04  # goes to the service's own listening socket
    REFUSED = 0x10  # answered as by a host on which nobody listens
    NO_NETWORK = 0x11
    NO_HOST = 0x12
    FORBIDDEN = 0x13

    def of(self, number: int) -> int:
        """The whole mark, of the capsule with a number."""
        return _PREFIX | number << 16 | self


REFUSALS = {
    errno.ECONNREFUSED: Mark.REFUSED,
    errno.ENETUNREACH: Mark.NO_NETWORK,
    errno.EHOSTUNREACH: Mark.NO_HOST,
}


def kind_for(error: int) -> Mark:
    """The mark with which ``connect`` fails in the service as it did at the border, or with EHOSTUNREACH."""
    return REFUSALS.get(error, Mark.FORBIDDEN)


def queue_of(number: int) -> int:
    """Number of the netfilter queue in which connections that begin, and questions to name servers, wait."""
    return 0x5200 | number


def entrance4(number: int) -> str:
    """The address of an entrance (127.0.0.0/8 is local everywhere)."""
    return f"127.82.69.{number}"


def entrance6(number: int) -> str:
    """The same for IPv6; nobody needs to have it, since the socket is a transparent one."""
    return f"fd52:4556::{number:x}"
