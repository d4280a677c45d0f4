"""Whether CRIU's images of an archive are all there and fit together, as far as that can be told without restoring them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.errors import ArchiveInvalid, ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_inventory
from relive.images.pagemap import Run, read_pagemap
from relive.images.sockets import read_connections, read_files, read_listening
from relive.remotes.archive import invalid

__all__ = ["check_images", "machine_of"]

_PAGE = 4096  # [bytes]
_WITH_MEMORY = (1, 3)  # task_state of a process that runs or is stopped; zombies and such have none
_MACHINES = {1: "x86_64", 3: "aarch64", 4: "ppc64le", 5: "s390x"}  # by CoreEntry.mtype


def check_images(archive: str, images: Path) -> None:
    """Look at them.

    Raises:
        ArchiveInvalid: an image is missing or damaged, or the memory is not that which the images speak of.
    """
    try:
        _check_processes(images)
        _check_sockets(images)
        _check_memory(images)
    except FileNotFoundError as error:
        raise invalid(archive, f"the image {Path(str(error.filename)).name} is missing") from error
    except ObjectCorrupt as error:
        raise ArchiveInvalid(
            f"{archive} cannot be imported",
            cause=str(error),
            remedy="checkpoint the container again; if it was done with --with-previous, without that",
        ) from error


def machine_of(images: Path) -> str | None:
    """The architecture whose instructions the memory holds, as ``uname -m`` calls it; None where it is not known."""
    root = read_entries(images / "pstree.img", pb.PstreeEntry)[0].pid
    return _MACHINES.get(read_entries(images / f"core-{root}.img", pb.CoreEntry)[0].mtype)


def _check_processes(images: Path) -> None:
    read_inventory(images)
    processes = read_entries(images / "pstree.img", pb.PstreeEntry)
    if not processes:
        raise _damaged("pstree.img", "it names no process")
    for process in processes:
        if not process.threads:
            continue  # a zombie, or a process of which CRIU keeps the number only
        for thread in process.threads:
            if not read_entries(images / f"core-{thread}.img", pb.CoreEntry):
                raise _damaged(f"core-{thread}.img", "it is empty")
        core = read_entries(images / f"core-{process.pid}.img", pb.CoreEntry)[0]
        if core.tc.task_state in _WITH_MEMORY:
            for kind in ("mm", "pagemap"):
                (images / f"{kind}-{process.pid}.img").stat()


def _check_sockets(images: Path) -> None:
    """All that a manifest tells of them can be read."""
    files = read_files(images)
    read_connections(images, files)
    read_listening(files)


def _check_memory(images: Path) -> None:
    """Each page file is described by one pagemap, to its last byte."""
    sizes = {path.name: path.stat().st_size for path in images.glob("pages-*.img")}
    for path in sorted(images.glob("pagemap-*.img")):
        number, runs = read_pagemap(path.name, path.read_bytes())
        pages = f"pages-{number}.img"
        size = sizes.pop(pages, None)
        wanted = sum(count for _, count in runs) * _PAGE
        if size is None and wanted:
            raise _damaged(
                path.name, f"it describes {pages}, which is not there, or which another one describes"
            )
        if size is not None and size != wanted:
            raise _damaged(pages, f"it has {size} bytes, and {path.name} describes {wanted}")
        if _overlap(runs):
            raise _damaged(path.name, "it names a page twice")
    if sizes:
        raise _damaged(min(sizes), "no pagemap describes it")


def _overlap(runs: Iterable[Run]) -> bool:
    end = -1
    for first, count in sorted(runs):
        if first < end:
            return True
        end = first + count
    return False


def _damaged(image: str, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"image {image} is damaged", cause=cause)
