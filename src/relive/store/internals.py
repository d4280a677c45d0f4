"""Internal parts of a store, for what maintains a store as a whole (room ``maintenance``); everything else uses ``Store``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relive.store.format import StoreFormat
from relive.store.keyring import Keyring
from relive.store.lock import StoreLock
from relive.store.manifests import Manifests
from relive.store.objects import Objects
from relive.store.pages.packs import Packs
from relive.store.pages.placement import Placements

__all__ = ["StoreInternals"]


@dataclass(frozen=True, slots=True)
class StoreInternals:
    """Who removes or moves something holds ``lock`` alone, who puts something in its place holds it shared.

    Attributes:
        incoming: on the same file system; for what is not yet at its place.
    """

    directory: Path
    incoming: Path
    lock: StoreLock
    format: StoreFormat
    keyring: Keyring
    manifests: Manifests
    objects: Objects
    packs: Packs
    placements: Placements
