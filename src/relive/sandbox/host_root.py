"""Making the root file system of a branch whose files lie over those of the host, as far as nothing has to be mounted yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.config import Settings
from relive.kernel.mounts import read_mounts
from relive.model.commit import CommitId, LayerKind, Manifest
from relive.sandbox.branch_root import HostRoot
from relive.sandbox.changed_files import LaterFiles, lay_changes
from relive.sandbox.committed_numbers import committed_numbers
from relive.sandbox.mount_points import refuse_hostile_points
from relive.sandbox.rootfs import CoveredPoint, plan_points
from relive.store import Store

__all__ = ["make_host_root"]


def make_host_root(
    settings: Settings, store: Store, commit: CommitId, manifest: Manifest, directory: Path
) -> HostRoot:
    """The root file system of a branch that has the given directory.

    Raises:
        ObjectMissing, ObjectCorrupt: something of the commit is gone or damaged, or would lie where no commit may lay files.
    """
    refuse_hostile_points(manifest, settings)
    trees = {
        layer.point: store.files.lay_out_layer(layer)
        for layer in manifest.layers
        if layer.kind is LayerKind.OVERLAY and layer.entries
    }
    memory = [
        (layer.point, store.files.lay_out_layer(layer))
        for layer in manifest.layers
        if layer.kind is LayerKind.TMPFS and layer.entries
    ]
    points = _with_committed(plan_points(read_mounts(), settings.home), trees)
    later = LaterFiles.of(settings, manifest)
    laid = later.read()
    (directory / "later").mkdir()
    in_memory = [layer.point for layer in manifest.layers if layer.kind is LayerKind.TMPFS]
    all_points = [*(point.point for point in points), *in_memory]
    laid_trees = lay_changes(laid, all_points, directory / "later", later.held.absent)
    memory += [(point, tree) for point, tree in laid_trees.items() if point in in_memory]
    return HostRoot(
        directory=directory,
        home=settings.home,
        tools=settings.tools_path,
        covered=[
            (point, [found[point.point] for found in (trees, laid_trees) if point.point in found])
            for point in points
        ],
        memory_layers=memory,
        later=later,
        laid=laid,
        inode_numbers=committed_numbers(store, commit, manifest),
    )


def _with_committed(points: list[CoveredPoint], trees: Iterable[str]) -> list[CoveredPoint]:
    """The host's points, and those of the commit where nothing is mounted on this host (any more)."""
    here = {point.point for point in points}
    missing = [tree for tree in sorted(trees) if tree not in here and Path(tree).is_dir()]
    return points + [CoveredPoint(tree, f"c{number:02}") for number, tree in enumerate(missing)]
