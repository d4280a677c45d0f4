"""The list of what is condemned and since when: the file ``condemned`` in the store, JSON ``{"KIND/NAME": nanoseconds}``.

It may be lost at any time: then all garbage is condemned anew, and waits once more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from relive.maintenance.garbage import Thing
from relive.maintenance.problems import Kind
from relive.store.atomic_io import write_whole
from relive.store.internals import StoreInternals

__all__ = ["read_condemned", "write_condemned"]


def read_condemned(parts: StoreInternals) -> dict[Thing, int]:
    """What was written last; empty where there is none that can be read."""
    try:
        found = json.loads((parts.directory / "condemned").read_bytes())
        things = {}
        for text, since in found.items():
            kind, _, name = text.partition("/")
            things[Thing(Kind(kind), name)] = int(since)
        return things
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}


def write_condemned(parts: StoreInternals, condemned: Mapping[Thing, int]) -> None:
    """Replace it, durable on return; to be called with the store's lock held alone."""
    value = {f"{thing.kind.value}/{thing.name}": since for thing, since in sorted(condemned.items())}
    write_whole(parts.incoming, parts.directory / "condemned", json.dumps(value).encode())
