"""Which of the files that commits captured differ; texts line by line (difflib)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import islice
from posixpath import join

from pydantic import Field

from relive.model.commit import EntryKind, FileEntry, Layer
from relive.model.value import Value

__all__ = ["FileChange", "FileDifference", "file_differences", "text_difference"]

_MOST_TEXT = 256 << 10  # [bytes] of a file that is compared line by line
_MOST_LINES = 200


class FileChange(StrEnum):
    """What became of a path; ``attributes``: owner, mode or kind, with the same content."""

    ADDED = "added"
    REMOVED = "removed"
    CONTENT = "content"
    ATTRIBUTES = "attributes"


class FileDifference(Value):
    """A path that differs.

    Attributes:
        before, after: its size in bytes, None where it is not there.
        lines: of a text, the difference in unified form, its first lines; cut: lines that are left out.
    """

    path: str
    change: FileChange
    before: int | None
    after: int | None
    lines: list[str] = Field(default=[])
    cut: int = 0


def file_differences(
    before: Iterable[Layer], after: Iterable[Layer], content: Callable[[FileEntry], bytes]
) -> list[FileDifference]:
    """In the order of paths. Directories are told only where they come or go.

    Args:
        content: reads a file; what it raises goes on.
    """
    old, new = _entries(before), _entries(after)
    return [
        found
        for path in sorted(old.keys() | new.keys())
        if (found := _compared(path, old.get(path), new.get(path), content)) is not None
    ]


def _entries(layers: Iterable[Layer]) -> dict[str, FileEntry]:
    found = {join(layer.point, entry.path): entry for layer in layers for entry in layer.entries}
    return {path: entry for path, entry in found.items() if entry.kind is not EntryKind.WHITEOUT}


def _compared(
    path: str, old: FileEntry | None, new: FileEntry | None, content: Callable[[FileEntry], bytes]
) -> FileDifference | None:
    if old is None or new is None:
        change = FileChange.ADDED if old is None else FileChange.REMOVED
    elif (old.kind, old.object, old.link) != (new.kind, new.object, new.link):
        change = FileChange.CONTENT
    elif old.kind is not EntryKind.DIRECTORY and _attributes(old) != _attributes(new):
        change = FileChange.ATTRIBUTES
    else:
        return None
    lines: list[str] = []
    cut = 0
    if old is not None and new is not None and change is FileChange.CONTENT and _may_be_text(old, new):
        lines, cut = text_difference(content(old), content(new))
    return FileDifference(
        path=path,
        change=change,
        before=old.size if old is not None else None,
        after=new.size if new is not None else None,
        lines=lines,
        cut=cut,
    )


def _attributes(entry: FileEntry) -> tuple[object, ...]:
    return entry.mode, entry.uid, entry.gid, entry.attributes


def _may_be_text(old: FileEntry, new: FileEntry) -> bool:
    return all(one.object is not None and one.size <= _MOST_TEXT for one in (old, new))


def text_difference(old: bytes, new: bytes) -> tuple[list[str], int]:
    """(lines of the unified difference, lines that are left out); none where one of them is no text."""
    try:
        texts = [one.decode().splitlines() for one in (old, new)]
    except UnicodeDecodeError:
        return [], 0
    if b"\0" in old or b"\0" in new:
        return [], 0
    lines = list(islice(difflib.unified_diff(texts[0], texts[1], lineterm="", n=1), 2, None))
    return lines[:_MOST_LINES], max(0, len(lines) - _MOST_LINES)
