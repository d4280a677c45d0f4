"""Files that one commit brings, until their contents lie in its pack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from relive.store.pages.numpy_threads import load_numpy
from relive.store.small_files import FilePart
from relive.store.staging import Staging

if TYPE_CHECKING:
    from relive.store.pages.contents import NewContent

__all__ = ["NewFiles"]

Place = tuple[str, str]


class NewFiles:
    """Holds them by the names of their contents, in a directory of ``incoming`` that is locked while it is in use."""

    def __init__(self, stage: Callable[[], Staging]) -> None:
        self._stage = stage
        self._staging: Staging | None = None
        self._contents: dict[str, NewContent] = {}
        self._places: dict[str, Place] = {}
        self._count = 0

    def __contains__(self, name: str) -> bool:
        return name in self._contents

    def __len__(self) -> int:
        return len(self._contents)

    def ingest(self, file: Path, place: Place | None, part: FilePart | None = None) -> str:
        """Move a file of the same file system here; returns the BLAKE3 of its content.

        Args:
            place: the point of a layer and a path there: what stood there in the parent is what it is compared with.
            part: of a file of many, which stays where it is.
        """
        load_numpy()
        from relive.store.pages.contents import read_new  # noqa: PLC0415 - it takes numpy

        content = read_new(file if part is not None else self._moved(file), part)
        self._contents[content.name] = content
        if place is not None:
            self._places[content.name] = place
        return content.name

    def _moved(self, file: Path) -> Path:
        return file.rename(self._free_place())

    def _free_place(self) -> Path:
        if self._staging is None:
            self._staging = self._stage()
        self._count += 1
        return self._staging.files / f"{self._count:08}"

    def borrow(self, file: Path) -> str:
        """The same for a file that stays where it is, and does not change."""
        load_numpy()
        from relive.store.pages.contents import read_new  # noqa: PLC0415 - it takes numpy

        content = read_new(file)
        self._contents[content.name] = content
        return content.name

    def path(self, name: str) -> Path:
        """A file that holds a content, and nothing else."""
        content = self._contents[name]
        if content.is_part:
            target = self._free_place()
            with content.path.open("rb") as file:
                file.seek(content.begin)
                target.write_bytes(file.read(content.size))
            content = self._contents[name] = replace(content, path=target, begin=0, is_part=False)
        return content.path

    def compared(self, before: Callable[[Place], str | None]) -> dict[str, NewContent]:
        """All, by name, with what each took the place of.

        Args:
            before: the content that the parent's file of that place has; asked for those that were taken.
        """
        return {
            name: replace(content, before=before(self._places[name]) if name in self._places else None)
            for name, content in self._contents.items()
        }

    def clear(self) -> None:
        """Delete them."""
        self._contents.clear()
        self._places.clear()
        staging, self._staging = self._staging, None
        if staging is not None:
            staging.discard()
