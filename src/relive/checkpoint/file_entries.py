"""Committed files as the manifest tells them."""

from __future__ import annotations

import os
import stat

from relive.model.commit import EntryKind, FileEntry

__all__ = ["entry_of", "with_content"]

# One for all: each of its own would take as much room as all else of an entry.
_FIELDS = set(FileEntry.model_fields)
_NONE: dict[str, str] = {}


def entry_of(
    path: str,
    kind: EntryKind,
    facts: os.stat_result,
    *,
    link: str | None = None,
    opaque: bool = False,
    attributes: dict[str, str] | None = None,
) -> FileEntry:
    """An entry without its content.

    Args:
        path: in the layer, without a slash at its beginning.
        facts: what ``lstat`` says of it.
        link, opaque, attributes: as in ``FileEntry``.
    """
    return FileEntry.model_construct(
        _FIELDS,
        path=path,
        kind=kind,
        mode=stat.S_IMODE(facts.st_mode),
        uid=facts.st_uid,
        gid=facts.st_gid,
        mtime_ns=facts.st_mtime_ns,
        size=facts.st_size if kind is EntryKind.FILE else 0,
        link=link,
        opaque=opaque,
        attributes=attributes or _NONE,
    )


def with_content(entry: FileEntry, name: str) -> FileEntry:
    """The entry of a file whose content is stored by now, under that name."""
    return FileEntry.model_construct(_FIELDS, **{**entry.__dict__, "object": name})
