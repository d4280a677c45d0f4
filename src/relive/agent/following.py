"""Beginning to follow the files of a new life: what process 1 has to know of the lives before it."""

from __future__ import annotations

import os
from pathlib import Path

from relive.config import Settings
from relive.engine.journal import Control, read_journal
from relive.model.capsule import CapsuleSpec, DataChoice, LifePaths
from relive.store import Store

__all__ = ["prepare_following"]


def prepare_following(settings: Settings, spec: CapsuleSpec, paths: LifePaths) -> None:
    """Lay down what process 1 reads when it starts (``native/init/track.c``).

    ``covered`` is there where earlier lives have commits. It holds the paths of which none of these needs a base: each was touched
    in the last life that has commits, or after it, so those commits hold it, or a base was kept then. ``held`` names the
    directories that each commit holds whole.

    Raises:
        OSError: the disk is full.
    """
    Control(paths.files)
    held = [path for path, choice in spec.data.items() if choice is DataChoice.COPY]
    _write(paths.files / "held", held)
    store = Store(settings.store)
    try:
        committed = {commit.life for commit in store.log(spec.name)}
    finally:
        store.close()
    earlier = sorted(
        path.name for path in paths.directory.parent.iterdir() if path.name != paths.directory.name
    )
    with_commits = [life for life in earlier if life in committed]
    if not with_commits:
        return
    covered: set[str] = set()
    for life in earlier[earlier.index(with_commits[-1]) :]:
        journal = LifePaths(paths.directory.parent / life).files
        covered.update(record.path for record in read_journal(journal))
    _write(paths.files / "covered", sorted(covered))


def _write(path: Path, texts: list[str]) -> None:
    path.write_bytes(b"".join(os.fsencode(text) + b"\0" for text in texts))
