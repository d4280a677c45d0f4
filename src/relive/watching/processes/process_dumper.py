"""Commits of a service that somebody else started: its tree, with the files that it has changed since it is watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from relive.agent.commits.dumper import CriuDumper, DumpedCommit
from relive.checkpoint.dump import Aside
from relive.checkpoint.file_layers import LayerSource
from relive.checkpoint.request_gate import RequestGate
from relive.checkpoint.target import StoppedBy, Target, process_target
from relive.checkpoint.watched_files import WatchedFiles, WatchedScanner
from relive.config import Settings
from relive.errors import ProcessGone
from relive.kernel import procfs
from relive.model.advance import Advance
from relive.model.commit import LayerKind, Trigger
from relive.model.life_paths import LifePaths
from relive.watching.processes.following import FileTracker
from relive.watching.processes.journal import JournalWriter

__all__ = ["ProcessDumper"]

_MEMORY = ("/run", "/dev/shm")  # a branch has its own, with what was committed


class ProcessDumper:
    """See ``Dumper``. Its files are followed from its making on, if it runs then.

    Args:
        find: the pid of the service as it runs now, 0 while it does not.
        files: files and directories that each commit holds.
    """

    def __init__(
        self,
        settings: Settings,
        find: Callable[[], int],
        name: str,
        life: str,
        paths: LifePaths,
        files: Sequence[str],
    ) -> None:
        self._settings = settings
        self._find = find
        self._name, self._life = name, life
        self._named = files
        self._journal = JournalWriter(paths.followed)
        self._lock = threading.Lock()
        self._following: tuple[int, int, FileTracker] | None = None
        self._scanners: dict[str, WatchedScanner] = {}
        self._files_before: WatchedFiles | None = None
        self._criu = CriuDumper(settings, self._target)
        root = find()
        if root:
            self.begin(root)

    @property
    def advance(self) -> Advance:
        """See ``Dumper``."""
        return self._criu.advance

    def begin(self, root: int) -> None:
        """See ``Dumper``."""
        stat = procfs.read_stat(root)
        if stat is None:
            return
        with self._lock:
            if self._following is not None:
                pid, started, following = self._following
                if (pid, started) == (root, stat.start_ticks):
                    return
                following.close()
                self._following, self._journal.last_alive_ns = None, None
            self._following = (root, stat.start_ticks, FileTracker(root, self._journal, self._settings.home))

    def _target(self) -> Target:
        root = self._find()
        if not root:
            raise ProcessGone(f"{self._name} does not run", remedy="`relive ps` tells when it does")
        self.begin(root)
        with self._lock:
            if self._following is None:
                raise ProcessGone(
                    f"{self._name} has ended", remedy="`relive log` lists what was committed before"
                )
            following = self._following[2]
        if self._files_before is not None:
            following.forget_absent(self._files_before.absent)
        points = [mount for mount in following.points() if not _is_memory(mount)]
        kinds = [(point, LayerKind.OVERLAY) for point in points] + [
            (point, LayerKind.TMPFS) for point in _MEMORY
        ]
        settings, points = self._settings, [point for point, _ in kinds]
        files = WatchedFiles(
            root, following.look, self._named, points, settings.open_file_limit, settings.home
        )
        self._files_before = files
        sources = [
            LayerSource(point, kind, self._scanner(Path(f"{following.view}{point}"), point, kind, files))
            for point, kind in kinds
        ]
        return replace(process_target(root), name=self._name, life=self._life, sources=sources)

    def _scanner(self, directory: Path, point: str, kind: LayerKind, files: WatchedFiles) -> WatchedScanner:
        """A new one for each commit, which knows what the one before has copied."""
        before = self._scanners.get(point)
        scanner = self._scanners[point] = WatchedScanner(
            directory,
            point=point,
            files=files,
            is_first=point == "/",
            hides=kind is LayerKind.OVERLAY,
            known=before.known if before is not None else {},
            _described=before._described if before is not None else {},
        )
        return scanner

    @property
    def tracker_pid(self) -> int | None:
        """See ``Dumper``."""
        return self._criu.tracker_pid

    def dump(
        self,
        trigger: Trigger,
        gate: RequestGate,
        stopped: StoppedBy | None,
        name: str | None,
        aside: Aside,
    ) -> DumpedCommit:
        """See ``Dumper``."""
        return self._criu.dump(trigger, gate, stopped, name, aside)

    def close(self) -> None:
        """See ``Dumper``."""
        self._criu.close()
        with self._lock:
            if self._following is not None:
                self._following[2].close()
                self._following = None
        self._journal.close()


def _is_memory(point: str) -> bool:
    return any(point == top or point.startswith(f"{top}/") for top in _MEMORY)
