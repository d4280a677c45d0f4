"""On which earlier one of a series a member leans: few steps lead from each to the first, and most lean on one that is near. Pure.

The first, 0, and every fourth after it are *nodes*. Others lean on the newest node. A node leans on that of its number with the
lowest digit to the base of four that is not zero cleared: 52 on 48, that on 0.
"""

from __future__ import annotations

__all__ = ["NODE_EVERY", "is_node", "leans_on", "path"]

NODE_EVERY = 4


def is_node(number: int) -> bool:
    """Others may lean on this one."""
    return number % NODE_EVERY == 0


def leans_on(number: int) -> int:
    """On which one this one, which is not the first, leans. Each of 64 in a row is three steps from the first at most."""
    unit = NODE_EVERY
    while number % unit == 0:
        unit *= NODE_EVERY
    return number // unit * unit


def path(number: int) -> list[int]:
    """The steps from this one to the first, the nearest first; none from the first itself."""
    found = []
    while number:
        number = leans_on(number)
        found.append(number)
    return found
