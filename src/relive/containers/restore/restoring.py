"""Making a branch from a commit, whatever it is of: a capsule, a process, or a container."""

from __future__ import annotations

from pathlib import Path

from relive.config import Settings
from relive.containers.restore.making import make_container_root
from relive.model.commit import CommitId, Manifest, TargetKind
from relive.sandbox.branch import Branch
from relive.sandbox.branch_root import BranchRoot
from relive.sandbox.host_root import make_host_root
from relive.sandbox.restore_request import RestoreRequest
from relive.sandbox.restoring import restore as restore_on
from relive.store import Store

__all__ = ["restore"]

_AS_IT_WAS = RestoreRequest()


def restore(
    settings: Settings, store: Store, commit: CommitId, request: RestoreRequest = _AS_IT_WAS
) -> Branch:
    """Bring a commit to life in a sealed sandbox; the original, if it still runs, is not touched.

    Raises:
        as ``sandbox.restoring.restore``.
    """
    return restore_on(settings, store, commit, request, _branch_root)


def _branch_root(
    settings: Settings, store: Store, commit: CommitId, manifest: Manifest, directory: Path
) -> BranchRoot:
    if manifest.target.kind is TargetKind.CONTAINER:
        return make_container_root(settings, store, commit, manifest, directory)
    return make_host_root(settings, store, commit, manifest, directory)
