"""The directory of packs. Writing and reading them are ``packwriter`` and ``packreader``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from relive.store.atomic_io import delete_file

__all__ = ["Packs"]


class Packs:
    """Packs by name. Safe for several processes: a pack appears whole, and is never changed.

    Attributes:
        incoming: where packs are made.
        store_key: asked when the key is needed; None where packs are plain.
        old_keys: of packs that were sealed before the key was changed.
    """

    def __init__(
        self,
        directory: Path,
        incoming: Path,
        store_key: Callable[[], bytes | None],
        old_keys: Callable[[], Sequence[bytes]] = lambda: (),
    ) -> None:
        self._directory = directory
        self.incoming = incoming
        self.store_key = store_key
        self.old_keys = old_keys
        directory.mkdir(exist_ok=True)

    def store_keys(self) -> list[bytes]:
        """The keys that a pack may be sealed with, the likeliest first; none if there is none."""
        store_key = self.store_key()
        return [*([store_key] if store_key is not None else []), *self.old_keys()]

    def path(self, name: str) -> Path:
        """Where a pack lies or would lie."""
        return self._directory / name

    def names(self) -> set[str]:
        """All there are."""
        return set(os.listdir(self._directory))

    def has(self, name: str) -> bool:
        """It is there (its content is not checked)."""
        return os.path.exists(f"{self._directory}/{name}")  # noqa: PTH110 - of thirty packs a commit, twice

    def delete(self, name: str) -> int:
        """Remove one; returns the bytes freed, 0 if it was not there."""
        return delete_file(self.path(name))
