"""The index that was read last, checked and decoded: who restores a commit asks for its files, its images and its pages.

An index never changes where it lies, since packs are named by hashes of what they hold: what was read of an equal placement is
what would be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relive.store.pages.placement import Placement
    from relive.store.pages.table import PackIndex

__all__ = ["LastIndex"]


class LastIndex:
    """One index, some 16 bytes for each page of its commit. Use it from one thread."""

    def __init__(self) -> None:
        self._held: tuple[Placement, PackIndex] | None = None

    def get(self, placement: Placement) -> PackIndex | None:
        """The index of that placement; None where another was read last."""
        held = self._held
        return held[1] if held is not None and held[0] == placement else None

    def put(self, placement: Placement, index: PackIndex) -> None:
        """This one was read."""
        self._held = placement, index

    def forget(self) -> None:
        """Give its memory back."""
        self._held = None
