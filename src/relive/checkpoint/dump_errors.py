"""Why a commit was not taken, in Relive's errors: what CRIU says, what the disk says, and what the clock says."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from relive.checkpoint.criu_errors import (
    NOT_THE_TARGET,
    CriuExplanation,
    explain,
    read_error_lines,
    without_harmless,
)
from relive.config import Settings
from relive.errors import (
    CommitFailed,
    CommitTimedOut,
    DiskFull,
    ProcessGone,
    ReliveError,
    TargetUndumpable,
)
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.kernel.disk_errors import disk_full, used_up

__all__ = ["copy_errors", "criu_failure", "dump_stats", "no_space", "target_ended", "timed_out"]

STATS = "stats-dump"  # the image that CRIU writes last
_NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_NO_SPACE = "no space left for the commit; the service runs on"


def timed_out(target: str, cause: str) -> CommitTimedOut:
    """It took longer than ``commit_limit``."""
    return CommitTimedOut(
        f"the commit of {target} was given up",
        cause=cause,
        remedy="raise `commit_limit` in relive.toml if the service's memory is large",
    )


def target_ended(target: str, error: CommitFailed) -> ProcessGone:
    """The target ended meanwhile, which is why ``error`` came."""
    return ProcessGone(
        f"{target} ended while it was being committed",
        cause=error.cause,
        remedy="what was committed before is kept (`relive log`)",
    )


@contextlib.contextmanager
def copy_errors(where: Path) -> Iterator[None]:
    """Turn OSError into DiskFull or CommitFailed. ``where`` lies on the disk that is written to."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE_ERRNOS:
            raise CommitFailed(
                "failed while copying files", cause=str(error), remedy="run `relive doctor`"
            ) from error
        raise disk_full(_NO_SPACE, where, error) from error


def no_space(directory: Path, cause: str) -> DiskFull:
    """The disk of ``directory`` is full."""
    return disk_full(_NO_SPACE, directory, cause)


def criu_failure(
    target: str, images: Path, sentence: str, name: str, settings: Settings
) -> CommitFailed | DiskFull:
    """The error for a dump that CRIU could not do; its log is kept in ``logs`` of RELIVE_HOME.

    Args:
        target: its name.
        images: the directory of the dump, with CRIU's log.
        sentence: what CRIU answered.
        name: the commit's.
    """
    log = images / "criu.log"
    lines = without_harmless([line for line in [*read_error_lines(log), sentence] if line])
    # Then CRIU may not even have a log in which it could say so.
    if used_up(images) and not (log.exists() and lines):
        return no_space(images, "CRIU could not write its images")
    explanation = explain(lines)
    if explanation.reason == "no-space":
        return no_space(images, explanation.sentence)
    return _as_error(target, explanation, _save_log(log, settings.home / "logs", name))


def dump_stats(target: str, images: Path) -> pb.StatsEntry:
    """What CRIU measured. It writes this image last, and is content when it cannot: seen on a disk whose inodes were used up.

    Raises:
        DiskFull, CommitFailed: it is not there, or not whole.
    """
    try:
        return read_entries(images / STATS, pb.StatsEntry)[0]
    except (OSError, ValueError, IndexError, ReliveError) as error:
        if used_up(images):
            raise no_space(images, f"CRIU could not write {STATS}") from error
        raise CommitFailed(
            f"{target} was not committed: an image is missing",
            cause=f"CRIU left no whole {STATS}: {error}",
            remedy="try again; if it stays so, run `relive doctor`",
        ) from error


def _as_error(target: str, explanation: CriuExplanation, log: Path | None) -> CommitFailed:
    where = f" (CRIU's log: {log})" if log is not None else ""
    kind = CommitFailed if explanation.reason in NOT_THE_TARGET else TargetUndumpable
    return kind(
        f"{target} was not committed: {explanation.what}",
        cause=f"CRIU says: {explanation.sentence}{where}",
        remedy=explanation.remedy,
    )


def _save_log(log: Path, directory: Path, name: str) -> Path | None:
    if not log.exists():
        return None
    kept = directory / f"commit-{name[:12]}.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(log.read_bytes())
    except OSError:
        return None  # a full disk; the sentence itself is in the error
    return kept
