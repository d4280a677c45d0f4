"""What is asked of the store between chaos.py's rounds: is it all there, and is nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from _chaos_processes import until

from relive.config import Settings
from relive.errors import ReliveError
from relive.incidents.incidents import Incidents
from relive.store import Store


class StoreCheck:
    """The store of chaos.py's commits.

    Attributes:
        told: commits that were told durable: (target, when it was asked for, wall clock [ns]) by id.
        verified: ids of commits of which each object was hashed.
        problems: what was found; others add to it too.
    """

    def __init__(self, settings: Settings, name: str, problems: list[str]) -> None:
        self.settings = settings
        self.name = name
        self.problems = problems
        self.verified: set[str] = set()
        self.told: dict[str, tuple[str, int]] = {}

    def look(self) -> str:
        """Says "complete", or what is wrong with it."""
        found = "complete"
        try:
            store = Store(self.settings.store)
        except ReliveError as error:
            return f"does not open: {error}"
        try:
            listed = {commit.id for commit in store.log()}
            for commit_id in listed - self.verified:
                try:
                    self._verify(store, commit_id)
                except ReliveError:
                    # Its line in the index goes last, so that it is listed for a moment when nothing of it is there.
                    if not until(lambda gone=commit_id: gone not in {one.id for one in store.log()}, 5, 0.1):
                        raise
                self.verified.add(commit_id)
            # A look in the midst of thinning sees gaps that are none a moment later.
            if not until(lambda: not self._lost(store), 5, 0.1):
                found = f"told durable but not listed: {self._lost(store)}"
            self._sweep()
        except ReliveError as error:
            if error.code != "ref-unknown":  # thinned while we looked
                found = str(error)
        finally:
            store.close()
        return found

    def _lost(self, store: Store) -> list[str]:
        """Commits told durable that are not listed, though older ones are: they have not made room for newer ones.

        An incident, such as the end of a service that CRIU took along, keeps the commit before it beyond its time,
        and the last start of the service its first commit.
        """
        commits = store.log(self.name)  # the newest first
        kept = Incidents(self.settings.incidents).pinned()
        kept |= {[one.id for one in commits if one.life == commits[0].life][-1]} if commits else set()
        oldest = min((commit.taken_wall_ns for commit in commits if commit.id not in kept), default=0)
        listed = {commit.id for commit in commits}
        return [
            name
            for name, (of, told_ns) in self.told.items()
            if of == self.name and told_ns > oldest and name not in listed
        ]

    def _verify(self, store: Store, commit_id: Any) -> None:
        with tempfile.TemporaryDirectory(dir=self.settings.home) as directory:
            try:
                manifest = store.manifest(commit_id)
                store.images.lay_out(manifest, Path(directory))
                for layer in manifest.layers:
                    for entry in layer.entries:
                        if entry.object is not None:
                            store.files.content(entry)
            except ReliveError:
                if commit_id in {commit.id for commit in store.log()}:
                    raise

    def _sweep(self) -> None:
        """Nothing may be left in incoming/ but what a living process holds locked. Ten seconds of age are lent to it."""
        for path in self.incoming():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 2 and not is_locked(path):
                    os.utime(path, (0, time.time() - 60))
        Store(self.settings.store).close()
        for path in self.incoming():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 20 and not is_locked(path):
                    self.problems.append(f"left in incoming/: {path.name}")

    def incoming(self) -> list[Path]:
        """Commits that are being taken in, or were left behind."""
        return list((self.settings.store / "incoming").iterdir())


def holds_a_part(path: Path) -> bool:
    """Whether something of a commit is there, and not only what a living agent keeps for its next ones."""
    with contextlib.suppress(FileNotFoundError):
        return is_locked(path) and any(any((path / part).iterdir()) for part in ("images", "files"))
    return False


def is_locked(path: Path) -> bool:
    """A living process holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
