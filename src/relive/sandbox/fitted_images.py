"""A commit's small images as every branch of it gets them: checked, and without the rights that no branch has.

That depends on nothing but the commit, so a process that restores one several times does it once (``FittedImages.known``). It is
kept in memory only: what lies on a disk would have to be looked at again before it is used.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.cgroups import forget_groups
from relive.images.image_file import read_entries
from relive.images.locks import note_posix_locks
from relive.images.notify_filters import ask_nobody
from relive.images.parent_deaths import survive_criu
from relive.images.rights import forget_security_modules, limit_rights
from relive.images.sandbox_filters import limit_calls
from relive.images.shared_namespaces import forget_devices, networks_from_outside
from relive.images.timers import set_timers
from relive.images.validation import refuse_hostile_images, refuse_hostile_processes
from relive.kernel.procfs import read_file
from relive.model.commit import CommitId, Manifest, TargetKind
from relive.sandbox.image_facts import ImageFacts, read_image_facts
from relive.sandbox.remembered_numbers import Remembered, find_remembered
from relive.store import Store

__all__ = ["FittedImages", "fit_images"]

_KEPT = 2  # commits
_LARGEST = 4 << 20  # [bytes] of all small images of one; with large deleted files it is fitted anew each time
_PAGES = "pages-"
_known: OrderedDict[CommitId, FittedImages] = OrderedDict()


@dataclass(frozen=True, slots=True)
class FittedImages:
    """What ``fit_images`` found.

    Attributes:
        networks: what CRIU calls network namespaces of the target's own.
        may_ask: CRIU may restore it from under a filter of system calls.
        manifest: the commit's, with its layers.
        facts: what they say of what has to stand around the processes.
        small: content of the images by name, all but those of pages; empty where they are not kept.
        may_link: nothing is changed where they lie; a container's are.
        laid: where they lie, of the branch that was made last.
        sought: what ``remembered`` has found.
    """

    networks: Sequence[str]
    may_ask: bool
    manifest: Manifest
    facts: ImageFacts
    small: Mapping[str, bytes] = field(default_factory=dict)
    may_link: bool = True
    laid: list[Path] = field(default_factory=list)
    sought: list[Sequence[Remembered]] = field(default_factory=list)

    @staticmethod
    def known(store: Store, commit: CommitId) -> FittedImages | None:
        """As this process has fitted them before, of a commit that is still there.

        Raises:
            RefUnknown, ObjectCorrupt: the store does not have the commit (any more).
        """
        found = _known.get(commit)
        if found is not None:
            store.facts(commit)
        return found

    def lay_out(self, store: Store, images: Path) -> None:
        """Make all images in a directory; raises as ``CommittedImages.lay_out``.

        Links, where the last branch has them and they are as they were: an inode for each is what costs most on ext4 where many
        files have just been removed (``recently_deleted()`` of the kernel).
        """
        store.images.lay_out_page_files(self.manifest, images)
        before = [str(directory) for directory in self.laid]
        for name, content in self.small.items():  # texts: a branch has some twenty of them
            path = f"{images}/{name}"
            if not any(_is_linked(f"{directory}/{name}", path, content) for directory in before):
                with open(path, "xb") as file:  # noqa: PTH123
                    file.write(content)
        if self.may_link:
            self.laid[:] = [images]

    def remembered(self, images: Path, databases: Collection[str]) -> Sequence[Remembered]:
        """Where memory holds numbers of the commit's databases (``find_remembered``); it is looked for once.

        Args:
            images: where the page files lie.
        """
        if not self.sought:
            known = self.facts.numbers
            self.sought.append(
                find_remembered(images, {path: known[path] for path in databases if path in known})
            )
        return self.sought[0]


def _is_linked(source: str, path: str, content: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.link(source, path)
        if read_file(path) == content:
            return True
        os.unlink(path)  # noqa: PTH108
    return False


def fit_images(images: Path, commit: CommitId, manifest: Manifest, *, keep: bool) -> FittedImages:
    """Check and limit what is laid out in ``images``.

    Args:
        keep: it is to be ``known`` from now on; only where the directory holds nothing but the commit's images.

    Raises:
        ObjectCorrupt: something is damaged, or what no honest dump says.
    """
    processes = read_entries(images / "pstree.img", pb.PstreeEntry)
    refuse_hostile_processes(processes)
    is_container = manifest.target.kind is TargetKind.CONTAINER
    networks: list[str] = []
    if not is_container and any(name.startswith("netns-") for name in os.listdir(images)):
        forget_devices(images)
        networks = networks_from_outside(images)
    refuse_hostile_images(images, is_container=is_container)
    limit_rights(images, processes)
    if not is_container:
        forget_groups(images)
    forget_security_modules(images)
    ask_nobody(images)
    may_ask = limit_calls(images, processes)
    note_posix_locks(images)
    set_timers(images, processes)
    survive_criu(images, processes)
    small = _small(images, manifest) if keep else {}
    facts = read_image_facts(images)
    fitted = FittedImages(networks, may_ask, manifest, facts, small, may_link=not is_container)
    if fitted.may_link:
        fitted.laid.append(images)
    if fitted.small:
        _known[commit] = fitted
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    return fitted


def _small(images: Path, manifest: Manifest) -> dict[str, bytes]:
    """Nothing where they are not to be kept: they are many bytes, or files of a kind that is not made again one by one."""
    if manifest.version == 1:
        return {}
    paths = [path for path in images.iterdir() if not path.name.startswith(_PAGES)]
    if sum(path.stat().st_size for path in paths) > _LARGEST:
        return {}
    return {path.name: path.read_bytes() for path in paths}
