"""When what a commit keeps is compressed against a dictionary, and when a new one is begun. Pure decisions; full pages and changed
words have a dictionary each.

What one commit keeps becomes a dictionary, and the commits that follow, a *generation*, are compressed against that. The farther
the service goes on from it, the less it helps: when they have taken more beyond the best of them than a new one takes, a new one is
begun. So all together take at most twice what they would if the future were known. A dictionary that does not help is given up, and
another is tried after one commit, then after two, four and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relive.store.pages.dictionary import Dictionary

__all__ = ["Generation", "Trial", "begun", "may_begin", "may_use"]

_LEAST = 64  # [pages] for which a dictionary is begun
_MOST = 8192  # [pages] more are kept for themselves: they are read into memory at once
_TELLING = 1 << 16  # [bytes] of which the rate tells something
_WORTH = 0.8  # of what it takes without; a dictionary that saves less is given up
_PATIENCE_MOST = 32  # [commits]


@dataclass(frozen=True, slots=True)
class Trial:
    """What was compressed against a dictionary in one commit.

    Attributes:
        raw, stored: bytes before and after.
        sample, alone: bytes of some frames of it, and what they would be without the dictionary.
    """

    raw: int
    stored: int
    sample: int
    alone: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A dictionary in use, or one that was given up.

    Attributes:
        pack: position of the pack that has it.
        cost: bytes of what the commit that began it kept.
        best: part of its size to which anything was compressed against it, at its lowest; None before the first.
        excess: bytes that has taken beyond that since.
        is_useless: it did not help, so it is given up; patience: commits to wait then; idle: those waited.
    """

    pack: int
    dictionary: Dictionary
    cost: int
    best: float | None = None
    excess: float = 0.0
    is_useless: bool = False
    patience: int = 1
    idle: int = 0

    def after(self, trial: Trial) -> Generation:
        """The same when something was compressed against it."""
        if trial.raw < _TELLING:
            return self
        if trial.sample > _WORTH * trial.alone:
            return replace(self, is_useless=True)
        rate = trial.stored / trial.raw
        best = rate if self.best is None else min(self.best, rate)
        return replace(self, best=best, excess=self.excess + (rate - best) * trial.raw, patience=1)

    def unused(self) -> Generation:
        """The same when a commit made no use of it."""
        return replace(self, idle=self.idle + 1)

    @property
    def is_spent(self) -> bool:
        """It is time for a new one."""
        return self.excess > self.cost or (self.is_useless and self.idle >= self.patience)


def may_use(generation: Generation | None, pages: int) -> bool:
    """What so many pages have is to be compressed against a generation's dictionary."""
    return (
        generation is not None and not (generation.is_useless or generation.is_spent) and 0 < pages <= _MOST
    )


def may_begin(generation: Generation | None, pages: int) -> bool:
    """What so many pages have is to begin a new one."""
    return (generation is None or generation.is_spent) and _LEAST <= pages <= _MOST


def begun(pack: int, dictionary: Dictionary, cost: int, *, after: Generation | None) -> Generation:
    """A new one, which takes the place of ``after``."""
    failed = after is not None and after.is_useless
    patience = min(_PATIENCE_MOST, 2 * after.patience) if after is not None and failed else 1
    return Generation(pack, dictionary, cost, patience=patience)
