"""A death at any moment leaves a store that opens, and in which everything that was called durable is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .builders import commit, group, is_whole
from .crash_driver import SCENARIOS

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_death_at_any_change_of_the_disk_breaks_no_promise(scenario, memory_directory):
    """See crash_driver: it also counts, so that a scenario in which nothing dies is noticed."""
    done = subprocess.run(
        [sys.executable, "-m", "store.crash_driver", scenario, str(memory_directory)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= 1


class Ledger:
    """Notes what is synced and what is moved, by inode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: set[int] = set()
        self.moved: list[tuple[Path, bool]] = []
        self.unsynced_directories: set[Path] = set()
        self.unsynced_names: list[
            Path
        ] = []  # directories whose names were not durable when a manifest got its own
        fsync, replace = os.fsync, os.replace

        def noted_fsync(descriptor: Any) -> None:
            fsync(descriptor)
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            self.synced.add(os.fstat(number).st_ino)
            self.unsynced_directories.discard(Path(os.readlink(f"/proc/self/fd/{number}")))

        def noted_replace(source: Any, target: Any, **options: Any) -> None:
            inode = os.stat(source).st_ino
            if Path(target).parent.name == "manifests":
                self.unsynced_names += self.unsynced_directories
            replace(source, target, **options)
            self.moved.append((Path(target), inode in self.synced))
            self.unsynced_directories.add(Path(target).parent)

        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "replace", noted_replace)


def test_what_is_called_durable_was_synced_before_it_got_its_name_and_its_name_after(store, monkeypatch):
    """A power failure then loses nothing: neither bytes nor names."""
    ledger = Ledger(monkeypatch)
    one = commit(store, files={"a": b"1", "b": b"2"})
    store.tag("t", one.id)
    kinds = {
        path.parent.name if path.parent.name in ("manifests", "tags") else "pack" for path, _ in ledger.moved
    }
    assert kinds == {"pack", "manifests", "tags"}
    assert [path for path, synced in ledger.moved if not synced] == []
    assert ledger.unsynced_directories == set()
    assert ledger.unsynced_names == []  # of what a manifest counts on


def test_of_commits_that_are_published_together_only_packs_are_there_before_they_were_synced(
    store, monkeypatch
):
    """Such a pack is nobody's: no placement names it before it is durable, and no manifest before that."""
    ledger = Ledger(monkeypatch)
    one, two = group(store, [{"files": {"a": b"1"}}, {"files": {"a": b"2"}, "capture": "two"}])
    places = [path.parent.name for path, _ in ledger.moved]
    assert places == ["packs", "placements", "packs", "placements", "manifests", "manifests"]
    assert [path.parent.name for path, synced in ledger.moved if not synced] == ["packs"]
    assert {path.name for path in ledger.unsynced_names} == {
        "manifests"
    }  # of the one before, which came first
    assert ledger.unsynced_directories == set()
    assert is_whole(store, one.id) and is_whole(store, two.id) and two.parent == one.id


def test_a_dropped_manifest_is_gone_for_good_before_its_objects_are(store, home, monkeypatch):
    one = commit(store)
    steps: list[str] = []
    fsync, unlink = os.fsync, os.unlink

    def noted_fsync(descriptor: Any) -> None:
        fsync(descriptor)
        steps.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}'))}")  # noqa: PTH119

    def noted_unlink(path: Any, **options: Any) -> None:
        unlink(path, **options)
        steps.append("manifest" if str(path).endswith(".json") else "object")

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "unlink", noted_unlink)
    store.delete(one.id)
    assert steps[:3] == ["manifest", "sync manifests", "object"]
