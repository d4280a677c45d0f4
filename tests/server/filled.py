"""A home that holds a few commits without memory and a few incidents, for tests of the server that need no service."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from real.harness import TOOLS
from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Sighting
from relive.store import Store
from store.builders import SECOND, make_manifest

__all__ = ["Filled", "filled"]

_BEGAN_NS = 1_700_000_000 * SECOND


class Filled:
    """The home and the environment of a command on it; it can be given more."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings = Settings(home=home, tools=TOOLS)
        self.environment = dict(os.environ, RELIVE_HOME=str(home), RELIVE_TOOLS=str(TOOLS))
        self._made = 0

    def commits(self, count: int) -> list[CommitId]:
        """More commits, each a second younger than the one before."""
        with contextlib.closing(Store(self.settings.store)) as store:
            return [self._commit(store) for _ in range(count)]

    def _commit(self, store: Store) -> CommitId:
        self._made += 1
        manifest = make_manifest(capture=f"{self._made:016x}", wall_ns=_BEGAN_NS + self._made * SECOND)
        return store.add(manifest, new_bytes=4096).id

    def incidents(self, count: int) -> list[int]:
        """More incidents; gives their numbers."""
        kept = Incidents(self.settings.incidents)
        return [self._incident(kept) for _ in range(count)]

    def _incident(self, kept: Incidents) -> int:
        sighting = Sighting(
            kind=FailureKind.ANSWER,
            fingerprint="f",
            summary="request 7 was answered with status 500",
            seen_wall_ns=_BEGAN_NS,
            request=7,
        )
        tail = ["Traceback (most recent call last):", "KeyError: 'EUR'"]
        made = kept.add("pay", "pay-1", sighting, before=None, at=None, log_end=10, log_tail=tail)
        return made.number


@contextlib.contextmanager
def filled(commits: int = 12, incidents: int = 5, *, below: Path | None = None) -> Iterator[Filled]:
    """A home in a directory of its own, removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="relive-filled-", dir=below))
    try:
        made = Filled(home)
        ids = made.commits(commits)
        with contextlib.closing(Store(made.settings.store)) as store:
            store.tag("release", ids[0])
        made.incidents(incidents)
        yield made
    finally:
        shutil.rmtree(home)
