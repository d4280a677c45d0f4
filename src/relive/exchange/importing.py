"""Taking a commit in from an archive of Relive: read and judged first, then its parts, each checked by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.exchange.archive import MANIFEST, PLACEMENT, Reader, entry_name, invalid
from relive.exchange.fitness import refuse_unfit
from relive.exchange.imported import Imported
from relive.exchange.traffic import Show
from relive.model.commit import HostFacts
from relive.store import Store
from relive.store.deliveries import Deliveries
from relive.store.pages.packfile import HEAD_SIZE
from relive.store.parts import Part, PartKind
from relive.store.troubles import disk_errors

__all__ = ["import_own"]


def import_own(
    store: Store, path: Path, reader: Reader, host: HostFacts, *, force: bool, show: Show
) -> Imported:
    """Take the commit of an archive in; durable on return.

    Raises:
        as ``operations.imports.import_archive``.
    """
    deliveries = store.deliveries
    with deliveries.receiving():
        commit_id = reader.commit()
        manifest, placement = reader.content(MANIFEST), reader.content(PLACEMENT)
        commit = deliveries.open(commit_id, manifest, lambda: placement)
        if deliveries.whole(commit_id) is not None:
            return Imported(commit_id, 0, 0, len(commit.parts), False)
        if not force:
            refuse_unfit(commit.manifest.host, host)
        with show(f"Importing {commit_id[:10]}", path.stat().st_size) as done:
            missing = set(deliveries.missing(commit))
            size = sum(_take(deliveries, reader, part, part in missing, done) for part in commit.parts)
            reader.end()
        if deliveries.receive(commit, size):
            raise ObjectMissing(
                "parts of the commit are gone again",
                cause="other commits that it shares them with are being dropped here",
                remedy="run it again",
            )
    return Imported(commit_id, len(missing), size, len(commit.parts) - len(missing), True)


def _take(
    deliveries: Deliveries,
    reader: Reader,
    part: Part,
    is_missing: bool,
    done: Callable[[int], None],
) -> int:
    """Gather a part, or pass it over where it is not missing; returns the bytes gathered."""
    chunks = reader.chunks(entry_name(part))
    if not is_missing:
        for chunk in chunks:
            done(len(chunk))
        return 0
    size = 0
    goal = deliveries.arriving(part)
    with disk_errors("receiving a commit", goal.parent), goal.open("wb") as file:
        for chunk in chunks:
            if size == 0 and part.kind is PartKind.PACK:
                deliveries.check_seal(part, chunk[:HEAD_SIZE])
            file.write(chunk)
            size += len(chunk)
            done(len(chunk))
    try:
        deliveries.check_arrived(part)
    except ObjectCorrupt as error:
        raise invalid(reader.name, f"{part} was changed: {error.cause}") from error
    return size
