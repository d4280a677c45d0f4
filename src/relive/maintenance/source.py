"""Another store as a source of things by name. What comes from one is checked by who asked: see ``repair``.

Remotes are plugged in by room ``remotes``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from relive.maintenance.problems import Kind

__all__ = ["DirectorySource", "RepairSource", "store_in"]


class RepairSource(Protocol):
    """Where manifests, placements, packs and objects can be had. May be asked for the same thing several times."""

    def fetch(self, kind: Kind, name: str, target: Path) -> bool:
        """Write the thing to a new file; False if there is none of that name. The bytes may be anything.

        Raises:
            ReliveError: the source cannot be asked (any more).
            OSError: the file cannot be written.
        """


class DirectorySource:
    """A store on a file system of this host; it is only read."""

    def __init__(self, directory: Path) -> None:
        """``directory`` is a store's (see ``store_in``)."""
        self._directory = directory

    def fetch(self, kind: Kind, name: str, target: Path) -> bool:
        """As ``RepairSource.fetch``."""
        path = {
            Kind.MANIFEST: Path("manifests", f"{name}.json"),
            Kind.PLACEMENT: Path("placements", name),
            Kind.PACK: Path("packs", name),
            Kind.OBJECT: Path("objects", name[:2], name[2:]),
        }[kind]
        try:
            shutil.copyfile(self._directory / path, target)
        except FileNotFoundError:
            return False
        return True


def store_in(text: str) -> Path | None:
    """The store that a path or a ``file://`` URL names, or the one in the RELIVE_HOME that it names; None if neither."""
    address = urlsplit(text)
    if address.scheme not in ("", "file"):
        return None
    directory = Path(unquote(address.path)) if address.scheme else Path(text)
    for candidate in (directory, directory / "store"):
        # A remote has a format of its own, and nothing that is on its way in.
        if (candidate / "format").is_file() and (candidate / "incoming").is_dir():
            return candidate
    return None
