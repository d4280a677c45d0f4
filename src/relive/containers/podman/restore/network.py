"""The network of a container that comes back: a namespace with loopback and the addresses that it had, kept by a file.

runc is given the file; CRIU puts the processes into it where the images say that their network is external. Images of a container
with a namespace of its own (``--network none``) do not say so, and are told to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.kernel import loopback
from relive.kernel.mounts import bind, unmount
from relive.kernel.namespaces import in_new_network
from relive.sandbox.seal import check_sealed

__all__ = ["external_network", "has_processes", "make_network", "remove_network"]

_EXTERNAL = bytes.fromhex("19435654 52379355 0e000000 420c") + b"extRootNetNS"  # the whole of netns-N.img


def make_network(point: Path, addresses: Iterable[str]) -> None:
    """Make a namespace with these addresses and no way out, and keep it at ``point``, a new file.

    Raises:
        SealBroken: it is not sealed.
        OSError: it could not be made.
    """
    point.touch(exist_ok=False)

    def furnish() -> None:
        loopback.bring_up()
        loopback.add_addresses(sorted(set(addresses)))
        check_sealed()
        bind(Path("/proc/thread-self/ns/net"), point)

    in_new_network(furnish)


def has_processes(point: Path) -> bool:
    """A process lives in the network namespace that is kept there."""
    try:
        kept = point.stat()
    except OSError:
        return False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found = (process / "ns/net").stat()
            if (found.st_dev, found.st_ino) == (kept.st_dev, kept.st_ino):
                return True
    return False


def remove_network(point: Path) -> None:
    """Let the namespace go; it lives on while a process is in it. Doing it twice is no error."""
    with contextlib.suppress(OSError):  # EINVAL: nothing is mounted there (any more)
        unmount(point)
    point.unlink(missing_ok=True)


def external_network(images: Path) -> dict[str, bytes]:
    """Images to be added so that CRIU takes a network that it is given; none where they say so already."""
    root = read_entries(images / "pstree.img", pb.PstreeEntry)[0].pid
    number = read_entries(images / f"ids-{root}.img", pb.NamespaceIds)[0].net_ns_id
    name = f"netns-{number}.img"
    return {} if (images / name).exists() else {name: _EXTERNAL}
