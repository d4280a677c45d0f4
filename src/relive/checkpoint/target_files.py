"""The files of one commit: copied while the target runs, and what changed since then once more while it stands still.

A target in an overlay, or one whose files are followed, is committed with what it has written (``file_layers``, ``tracked_files``);
of any other only what it has open is copied (``open_files``).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from relive.checkpoint.expected_files import ExpectedFiles
from relive.checkpoint.file_layers import EntrySource, ScannedEntry
from relive.checkpoint.open_files import OpenFiles
from relive.checkpoint.open_paths import open_paths, shared_writable_paths
from relive.checkpoint.target import Target
from relive.images import criu_images_pb2 as pb
from relive.images.file_numbers import FileNumbers
from relive.kernel import procfs
from relive.model.advance import Advance
from relive.store import Staging

__all__ = ["TargetFiles"]


class TargetFiles:
    """Copies a target's files into the staging directory of one commit. Its methods may raise OSError: the disk is full.

    Attributes:
        layers: of each source, what it holds as of the last look.
        open_files: None where the commit holds all that the target has written.
    """

    def __init__(self, target: Target, staging: Staging, open_file_limit: int, home: Path) -> None:
        """``open_file_limit``: bytes of open files that are copied at most; ``home``: Relive's."""
        self._target = target
        self._staging = staging
        self._limit, self._home = open_file_limit, home
        self.layers: list[tuple[EntrySource, list[ScannedEntry]]] = []
        self.open_files = self._new_open_files()

    def _new_open_files(self) -> OpenFiles | None:
        return None if self._target.holds_files else OpenFiles(self._limit, self._home)

    def copy_ahead(self, advance: Advance) -> None:
        """Copy what changed since the last commit, while the target runs."""
        if self._target.followed is not None:
            self._target.followed.copy_changed(self._staging.files, advance)
        if not self._target.is_branch:
            self._scan()

    def look_frozen(self, images: Path | None) -> None:
        """Copy what changed since the look before; the target stands still.

        Args:
            images: CRIU's, once it is done and has given names to deleted files; None: they cannot be read yet.
        """
        if self._target.followed is not None:
            self._target.followed.look_frozen(images)
        self._scan()

    def expect(self) -> ExpectedFiles | None:
        """Look once more while the target runs: what has to be so still while it stands still, so that ``look_frozen`` and
        ``collect_open`` are not needed; None: they are.
        """
        if self._target.sources or self._target.extra_files:
            return None
        if self._target.followed is not None:
            return self._target.followed.expect()
        return self.open_files.expect(self._target.root, self._staging.files) if self.open_files else None

    def _scan(self) -> None:
        processes = procfs.tree_of(self._target.root) if self._target.sources else []
        shared = shared_writable_paths(processes)
        opened = open_paths(self._target.root) if self._target.sources else set()
        self.layers = []
        for number, source in enumerate(self._target.sources):
            top = source.point.rstrip("/") + "/"
            # Where only a part is captured by default, what is open has to be in it.
            needed = shared if source.scanner.largest is None else shared | opened
            always = {path.removeprefix(top) for path in needed if path.startswith(top)} | source.always
            copies = self._staging.files / f"{number:02}"  # each scanner numbers its copies by itself
            copies.mkdir(exist_ok=True)
            entries = source.scanner.scan(copies, always, source.skip)
            self.layers.append((source, entries))

    def collect_open(self) -> None:
        """Copy what the target has open; it stands still."""
        if self.open_files is not None:
            self.open_files.collect(self._target.root, self._staging.files)
            for path in self._target.extra_files:
                self.open_files.add_path(path, self._staging.files)

    def forget_open(self) -> None:
        """The target runs again, and nothing was taken: what it has open is copied anew at the next try."""
        if self.open_files is not None:
            self.open_files.discard()
            self.open_files = self._new_open_files()

    def complete(self, files: list[pb.FileEntry]) -> None:
        """CRIU is done: what its images say of files completes the layers."""
        if self._target.followed is not None:
            self.layers += self._target.followed.complete(files)

    def forget_copies(self) -> None:
        """The commit failed: copies that were staged for it are gone; what the store has stays known."""
        for source in self._target.sources:
            source.forget_lost_copies()
        if self._target.followed is not None:
            self._target.followed.forget_lost_copies()

    def file_numbers(self, paths: set[str]) -> dict[str, FileNumbers]:
        """Of those files that the commit holds, as the processes saw them."""
        if self._target.followed is not None:
            return self._target.followed.file_numbers(paths)
        if self.open_files is not None:
            known = self.open_files.file_numbers
            return {path: known[path] for path in paths & known.keys()}
        found = {}
        for source in self._target.sources:
            top = source.point.rstrip("/") + "/"
            for path in paths:
                below = path.removeprefix(top)
                # The upper layer's numbers are others than those which an overlay shows.
                if path.startswith(top) and source.scanner.is_still_there(below):
                    with contextlib.suppress(OSError):
                        facts = os.lstat(f"/proc/{self._target.root}/root{path}")
                        found[path] = FileNumbers(facts.st_dev, facts.st_ino)
        return found
