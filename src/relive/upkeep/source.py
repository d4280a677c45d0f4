"""Another store as a source of things by name. What comes from one is checked by who asked: see ``repair``.

A remote store is plugged in by another class with ``fetch``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from relive.errors import UsageError
from relive.upkeep.problems import Kind

__all__ = ["DirectorySource", "Source", "open_source"]


class Source(Protocol):
    """Where manifests, placements, packs and objects can be had. May be asked for the same thing several times."""

    def fetch(self, kind: Kind, name: str, goal: Path) -> bool:
        """Write the thing to a new file; False if there is none of that name. The bytes may be anything.

        Raises:
            ReliveError: the source cannot be asked (any more).
            OSError: the file cannot be written.
        """


class DirectorySource:
    """A store on a file system of this host; it is only read."""

    def __init__(self, directory: Path) -> None:
        """``directory`` is a store, or a RELIVE_HOME that has one; raises UsageError where it is neither."""
        for candidate in (directory, directory / "store"):
            if (candidate / "format").is_file():
                self._directory = candidate
                return
        raise UsageError(
            f"there is no store in {directory}",
            remedy="name a store's directory, or the RELIVE_HOME it lies in",
        )

    def fetch(self, kind: Kind, name: str, goal: Path) -> bool:
        """As ``Source.fetch``."""
        path = {
            Kind.MANIFEST: Path("manifests", f"{name}.json"),
            Kind.PLACEMENT: Path("placements", name),
            Kind.PACK: Path("packs", name),
            Kind.OBJECT: Path("objects", name[:2], name[2:]),
        }[kind]
        try:
            shutil.copyfile(self._directory / path, goal)
        except FileNotFoundError:
            return False
        return True


def open_source(text: str) -> Source:
    """The source that a path or a ``file://`` URL names.

    Raises:
        UsageError: there is no store, or the URL is of another kind.
    """
    address = urlsplit(text)
    if address.scheme in ("", "file"):
        return DirectorySource(Path(unquote(address.path)) if address.scheme else Path(text))
    raise UsageError(
        f"nothing can be fetched from {text!r}",
        cause=f"{address.scheme}:// is not known here",
        remedy="name a directory or a file:// URL",
    )
