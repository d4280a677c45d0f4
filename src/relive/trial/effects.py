"""What a branch did beside answering: the files that it wrote, the calls that it made."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from relive.model.outcome import Outcome
from relive.model.trial import Effects
from relive.replay.sequence import is_call
from relive.sandbox.branch import Branch

__all__ = ["effects_of", "files_of", "written_between"]

_FILES_MOST = 20_000  # looked at
_TOLD_MOST = 100

FileStates = Mapping[str, tuple[int, int, int]]


def files_of(branch: Branch) -> FileStates:
    """What its processes have of their own, by path: (inode, size, time of change); it lies in the overlays' upper layers."""
    found: dict[str, tuple[int, int, int]] = {}
    layers = branch.directory / "layers"
    for slot in sorted(layers.iterdir()) if layers.is_dir() else ():
        top = str(slot / "upper")
        for directory, _, names in os.walk(top):
            for name in names:
                path = f"{directory}/{name}"
                try:
                    facts = os.lstat(path)
                except OSError:
                    continue  # it is gone again
                found[f"{slot.name}:{path.removeprefix(top)}"] = (
                    facts.st_ino,
                    facts.st_size,
                    facts.st_mtime_ns,
                )
                if len(found) >= _FILES_MOST:
                    return found
    return found


def written_between(before: FileStates, after: FileStates) -> list[str]:
    """Paths that differ, without the name of their layer."""
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return sorted({path.partition(":")[2] for path in differing})[:_TOLD_MOST]


def effects_of(outcome: Outcome, files: list[str] | None) -> Effects:
    """Of one life; ``files``: as of ``Effects``."""
    calls = None
    if outcome.events is not None:
        calls = dict(sorted(Counter(event.kind for event in outcome.events if is_call(event)).items()))
    return Effects(calls=calls, unanswered=len(outcome.misses), files=files)
