"""Whether a commit of one machine can run on another: decided from what both say of themselves, before anything travels.

What is compared, and why:

- The machine's architecture: memory holds its instructions.
- The CPU's instruction sets: a program looks at them when it starts and keeps functions that use them, and CRIU restores
  registers that belong to them. More of them do no harm.
- The kernel, by its first two numbers: CRIU's images hold what that kernel told, an older one may not take it.
- CRIU, by all its numbers: images may hold what an older one does not know.
"""

from __future__ import annotations

import re
from itertools import zip_longest

from relive.errors import HostUnfit
from relive.model.commit import HostFacts

__all__ = ["refuse_unfit", "what_lacks"]

_SHOWN = 12  # CPU features named; there may be many


def what_lacks(needed: HostFacts, here: HostFacts) -> list[str]:
    """What this host lacks for a commit, each a phrase; empty where nothing is known to be in the way.

    A fact that the commit does not tell is no reason against it.
    """
    lacks = []
    if needed.machine is not None and needed.machine != here.machine:
        lacks.append(f"the machine is {here.machine or 'unknown'}, the commit's was {needed.machine}")
    features = sorted(set(needed.cpu or ()) - set(here.cpu or ()))
    if features:
        more = f" and {len(features) - _SHOWN} more" if len(features) > _SHOWN else ""
        lacks.append(f"the CPU lacks {' '.join(features[:_SHOWN])}{more}")
    if _is_older(here.kernel, needed.kernel, numbers=2):
        lacks.append(f"the kernel is {here.kernel}, the commit's was {needed.kernel}")
    if here.criu == "unknown" and needed.criu != "unknown":
        lacks.append(f"there is no CRIU of a known version, the commit's was {needed.criu}")
    elif _is_older(here.criu, needed.criu, numbers=3):
        lacks.append(f"CRIU is {here.criu}, the commit's was {needed.criu}")
    return lacks


def refuse_unfit(needed: HostFacts, here: HostFacts) -> None:
    """Raises HostUnfit where something lacks."""
    lacks = what_lacks(needed, here)
    if lacks:
        raise HostUnfit(
            f"this host cannot run the commit, which was taken on {needed.name}",
            cause="; ".join(lacks),
            remedy="use a host that has it, or --force to fetch the commit all the same; nothing was transferred",
        )


def _is_older(here: str, needed: str, *, numbers: int) -> bool:
    ours, theirs = _numbers(here)[:numbers], _numbers(needed)[:numbers]
    pairs = list(zip_longest(ours, theirs, fillvalue=0))
    return bool(ours and theirs) and [a for a, _ in pairs] < [b for _, b in pairs]


def _numbers(version: str) -> list[int]:
    """The numbers a version begins with: ``6.1.0-18-amd64`` is 6, 1, 0."""
    match = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", version)
    return [int(number) for number in match[0].split(".")] if match else []
