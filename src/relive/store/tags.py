"""Tags: names that keep commits. Each is a file that holds an id."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relive.errors import ObjectCorrupt, UsageError
from relive.model.commit import CommitId
from relive.store.atomic_io import state_of, write_whole
from relive.store.manifests import unknown
from relive.store.objects import is_id

__all__ = ["Tags"]

_FORBIDDEN = set("@{}/\\~^:")
_LENGTH = 200  # [bytes] a file name may have 255
# By directory: its state before they were read, and all of them; never changed in place, so any thread may look. Of the whole
# process, since a server opens a store for each request, and reading 200 tags takes as long as all else that a page costs.
_KNOWN: dict[Path, tuple[str, dict[str, CommitId]]] = {}
_KNOWN_MOST = 64


class Tags:
    """The directory of tags."""

    def __init__(self, directory: Path, incoming: Path) -> None:
        self._directory = directory
        self._incoming = incoming
        directory.mkdir(exist_ok=True)

    def find(self, name: str) -> CommitId | None:
        """What a tag names, None if there is none; raises ObjectCorrupt where it holds no id."""
        if not _can_be_tag(name):
            return None
        try:
            return self._read(name)
        except FileNotFoundError:
            return None

    def check_free(self, name: str, *, force: bool) -> None:
        """Raises UsageError where the name is not allowed, or is taken and ``force`` is not given."""
        if not _can_be_tag(name):
            raise UsageError(
                f"{name!r} cannot be a tag",
                cause=f"blanks and any of @{{}}/\\~^: are not allowed, nor a dot in front, nor over {_LENGTH} bytes",
            )
        path = self._directory / name
        if path.exists() and not force:
            raise UsageError(
                f"the tag {name!r} exists",
                cause=f"it names {path.read_text(errors='replace')[:10]}",
                remedy="use --force to move it",
            )

    def write(self, name: str, commit_id: CommitId) -> None:
        """Let an allowed name stand for a commit; durable on return."""
        write_whole(self._incoming, self._directory / name, commit_id.encode())

    def delete(self, name: str) -> None:
        """Remove one; raises RefUnknown when there is none."""
        try:
            if not _can_be_tag(name):
                raise unknown(name)
            (self._directory / name).unlink()
        except FileNotFoundError:
            raise unknown(name) from None

    def all(self) -> dict[str, CommitId]:
        """All in order of their names; damaged ones are passed over."""
        state = state_of(self._directory)
        known = _KNOWN.get(self._directory)
        if state is not None and known is not None and known[0] == state:
            return dict(known[1])
        found = {}
        for name in sorted(os.listdir(self._directory)):
            with contextlib.suppress(FileNotFoundError, ObjectCorrupt):
                found[name] = self._read(name)
        if state is not None:
            if len(_KNOWN) >= _KNOWN_MOST:
                _KNOWN.clear()
            _KNOWN[self._directory] = (state, found)
        return dict(found)

    def _read(self, name: str) -> CommitId:
        with open(f"{self._directory}/{name}", errors="replace") as file:  # noqa: PTH123 - half the time of a Path's, of many
            text = file.read().strip()
        if not is_id(text):
            raise ObjectCorrupt(
                f"the tag {name!r} is damaged",
                cause="it holds no commit's id",
                remedy="remove it with `relive tag --delete` and set it again",
            )
        return CommitId(text)


def _can_be_tag(name: str) -> bool:
    return (
        name.isprintable()
        and not name.startswith(".")
        and 0 < len(name.encode(errors="replace")) <= _LENGTH
        and not any(char in _FORBIDDEN or char.isspace() for char in name)
    )
