"""What a branch of a watched service's commit cannot have as it was: files that changed since, and are not in the commit."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from relive.config import Settings
from relive.model.commit import Manifest, TargetKind
from relive.model.life_paths import LifePaths
from relive.watching.processes.journal import CREATED, Journaled, read_journal

__all__ = ["sentences_of", "unlike_then"]

_SHOWN = 5
_SILENT_AFTER = 5.0  # [s] without a sign of life after which nobody seems to follow


def unlike_then(settings: Settings, manifest: Manifest) -> list[str]:
    """Sentences for who restores a commit here; none for commits of anything else than a watched process or unit."""
    target = manifest.target
    if target.kind is not TargetKind.PROCESS or target.life is None:
        return []
    path = LifePaths(settings.capsules / target.name / target.life).followed
    if not path.exists():
        return []
    silent_ns = path.stat().st_mtime_ns
    return sentences_of(manifest, read_journal(path), silent_ns, time.time_ns())


def sentences_of(manifest: Manifest, journal: Journaled, alive_ns: int, now_ns: int) -> list[str]:
    """See ``unlike_then``. ``alive_ns``: when somebody followed last."""
    held = {f"{layer.point.rstrip('/')}/{entry.path}" for layer in manifest.layers for entry in layer.entries}
    left_out = [line for layer in manifest.layers for line in layer.left_out]
    apart = {_path_of(line) for line in left_out}
    lost, made = [], []
    for name, (at, how) in sorted(journal.paths.items()):
        if name in held or name in apart:
            continue
        if at > manifest.taken_wall_ns and how != CREATED:
            lost.append(name)
        elif os.path.lexists(name):
            made.append(name)
    gone = [
        text.partition("\t")[2]
        for at, text in journal.gaps
        if at > manifest.taken_wall_ns and text not in left_out
    ]
    if now_ns - alive_ns > _SILENT_AFTER * 1e9 and alive_ns > manifest.taken_wall_ns:
        gone.append(f"files first changed since {datetime.fromtimestamp(alive_ns / 1e9, UTC):%F %T} UTC")
    found = []
    if lost:
        found.append(
            f"As they are now, not as they were then, since the service changed them first later: {_few(lost)}."
        )
    if made:
        found.append(f"Seen in the branch, though they were not there then: {_few(made)}.")
    if gone:
        found.append(f"Not known, and seen as it is now: {_few(gone)}.")
    return found


def _path_of(line: str) -> str:
    return "/" + line.partition("\t")[0].lstrip("/")


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
