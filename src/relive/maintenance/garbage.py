"""What is garbage, and what is to be done with it now. A pure decision.

Garbage is condemned first and deleted when it has been garbage for a while (the grace): what looks useless may be in use by
what has not said so yet, such as a commit that arrives in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from relive.maintenance.problems import Kind

__all__ = ["Decision", "Thing", "decide"]


@dataclass(frozen=True, slots=True, order=True)
class Thing:
    """A placement, a pack or an object, by name."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with each piece of garbage, in order.

    Attributes:
        condemn: seen for the first time now; wait: condemned not long enough ago; delete: the rest.
    """

    condemn: list[Thing]
    wait: list[Thing]
    delete: list[Thing]


def decide(
    garbage: Collection[Thing], condemned: Mapping[Thing, int], *, now_ns: int, grace_ns: int
) -> Decision:
    """Sort garbage into what is to be condemned, waited for and deleted.

    Args:
        condemned: since when; what is no garbage any more is passed over, and so pardoned.
        grace_ns: with 0 all is deleted at once.
    """
    condemn, wait, delete = [], [], []
    for thing in sorted(garbage):
        since = condemned.get(thing, now_ns)
        # A clock that was set back makes it wait longer, never shorter.
        if now_ns - since >= grace_ns:
            delete.append(thing)
        elif thing in condemned:
            wait.append(thing)
        else:
            condemn.append(thing)
    return Decision(condemn, wait, delete)
