"""What is drawn by chance: the same in each run of the suite, anew in a soak."""

from __future__ import annotations

import random

__all__ = ["drawn"]


def drawn(seed: int | None) -> random.Random:
    """A source of choices with that seed; None: with another in each run, which is printed so that a failure can be had again."""
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)
