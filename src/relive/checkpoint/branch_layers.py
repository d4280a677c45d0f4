"""The files of a branch's commit: those of the commit that it came from, with what the branch has changed. Pure.

A branch writes to upper layers of its own over its commit's files; in memory (``/run``, ``/dev/shm``) it has all of them for
itself. So the layers of its commit are folded here as overlayfs shows them (overlayfs.rst of the kernel), and can be laid over the
host's files as those of any commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from relive.checkpoint.file_layers import CapturedFile, EntrySource, ScannedEntry
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind

__all__ = ["FoldedSource", "fold_layers"]


@dataclass(frozen=True, slots=True)
class FoldedSource:
    """See ``EntrySource``: a layer of the commit before, and what read the branch's changes of it, if there are any."""

    point: str
    kind: LayerKind
    left_out: list[str]
    changes: EntrySource | None = field(default=None)

    def forget(self, lost: Collection[CapturedFile]) -> None:
        """Copy files anew next time, since copies of them are lost."""
        if self.changes is not None:
            self.changes.forget(lost)


def fold_layers(
    before: Sequence[Layer],
    changes: Iterable[tuple[EntrySource, list[ScannedEntry]]],
    given: Collection[str] = (),
) -> list[tuple[EntrySource, list[ScannedEntry]]]:
    """The layers of a branch's commit.

    Args:
        before: those of the commit that it came from, one for each mount point.
        changes: what the branch's upper layers hold; of a file system in memory all that is there.
        given: paths of directories in memory that each branch has, whatever its commit holds.
    """
    held = {f"{layer.point.rstrip('/')}/{entry.path}" for layer in before for entry in layer.entries}
    changed = {
        source.point: (source, _without_given(source, entries, set(given) - held))
        for source, entries in changes
    }
    folded: list[tuple[EntrySource, list[ScannedEntry]]] = []
    for layer in before:
        source, entries = changed.pop(layer.point, (None, []))
        if source is None:
            found = _as_scanned(layer.entries)
        elif layer.kind is LayerKind.TMPFS:
            found = _with_absent(layer.entries, entries)
        else:
            found = _over(layer.entries, entries)
        left_out = _still_left_out(layer, found)
        folded.append((FoldedSource(layer.point, layer.kind, left_out, source), found))
    return folded + [(source, entries) for source, entries in changed.values() if entries]


def _as_scanned(entries: Sequence[FileEntry]) -> list[ScannedEntry]:
    return [(entry, None) for entry in entries]


def _over(below: Sequence[FileEntry], above: Sequence[ScannedEntry]) -> list[ScannedEntry]:
    """Entries of an overlay's upper layer over those of the layer below it; in path order, parents before children."""
    upper = {entry.path: entry for entry, _ in above}
    hiding = {path for path, entry in upper.items() if entry.kind is not EntryKind.DIRECTORY or entry.opaque}
    seen = {entry.path: entry for entry in below if not _is_below(entry.path, hiding)}
    found = [(entry, None) for path, entry in seen.items() if path not in upper]
    found += [(_as_shown(entry, seen.get(entry.path)), content) for entry, content in above]  # type: ignore[misc]
    return sorted(found, key=lambda one: one[0].path)


def _as_shown(entry: FileEntry, below: FileEntry | None) -> FileEntry:
    """A directory hides what lies below the layer under it where that does, or has no directory there."""
    if entry.kind is not EntryKind.DIRECTORY or below is None:
        return entry
    hides = entry.opaque or below.opaque or below.kind is not EntryKind.DIRECTORY
    return entry.model_copy(update={"opaque": hides})


def _without_given(
    source: EntrySource, entries: list[ScannedEntry], given: Collection[str]
) -> list[ScannedEntry]:
    """Without those directories that are empty: they are no change."""
    if source.kind is not LayerKind.TMPFS:
        return entries
    filled = {_above(entry.path) for entry, _ in entries}
    top = source.point.rstrip("/")
    return [one for one in entries if f"{top}/{one[0].path}" not in given or one[0].path in filled]


def _with_absent(below: Sequence[FileEntry], present: Sequence[ScannedEntry]) -> list[ScannedEntry]:
    """All that is in a file system in memory, and that of what was committed there the rest is not there any more."""
    there = {entry.path: entry.kind for entry, _ in present}
    gone = [entry.path for entry in below if entry.path not in there]
    absent = [path for path in gone if there.get(_above(path)) is EntryKind.DIRECTORY or not _above(path)]
    whiteouts: list[ScannedEntry] = [(FileEntry(path=path, kind=EntryKind.WHITEOUT), None) for path in absent]
    return sorted([*present, *whiteouts], key=lambda one: one[0].path)


def _still_left_out(layer: Layer, found: Sequence[ScannedEntry]) -> list[str]:
    """Lines on paths that the commit before lacked, and the branch has not put something else in the place of."""
    held = {entry.path for entry, _ in found}
    hiding = {entry.path for entry, _ in found if entry.kind is not EntryKind.DIRECTORY or entry.opaque}
    top = layer.point.strip("/")
    kept = []
    for line in layer.left_out:
        path = line.partition("\t")[0].strip("/").removeprefix(f"{top}/" if top else "")
        if path not in held and not _is_below(path, hiding):
            kept.append(line)
    return kept


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _is_below(path: str, tops: Collection[str]) -> bool:
    above = _above(path)
    while above:
        if above in tops:
            return True
        above = _above(above)
    return False
