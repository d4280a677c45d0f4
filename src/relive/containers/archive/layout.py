"""What is called how in a checkpoint archive, and what a commit makes of it.

CRIU's images (``checkpoint/NAME.img``) become a commit's images. All else becomes an entry of the commit's layer of kind
``archive``, as do images so large that they do not belong into a bundle (files of a tmpfs, mostly).
"""

from __future__ import annotations

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "CRI_NAME",
    "IMAGE",
    "IMAGE_MOST",
    "NO_CONTAINER",
    "OTHER_ARCHIVES",
    "SPEC",
    "STATS",
    "image_name",
    "image_path",
    "is_page_file",
]

CONFIG, SPEC, STATS = "config.dump", "spec.dump", "stats-dump"
CHECKPOINT = "checkpoint"
# No engine's: the container's image, as `podman save --format oci-archive` writes it.
IMAGE = "relive/image.tar"
# Annotation by which checkpointctl knows a container of containerd.
CRI_NAME = "io.kubernetes.cri.container-name"
NO_CONTAINER = "relive.commit"  # annotation in the specification of what Relive wrote to be looked into only
IMAGE_MOST = 16 << 20  # [bytes] of an image in the bundle; page files are never in it

OTHER_ARCHIVES = {
    "pod.dump": "it holds a whole pod: import the archives of its containers, which lie in it",
    "checkpointed.pods": "it holds several pods: import the archives of their containers, which lie in it",
    "oci-layout": "it is an OCI image: `podman container restore` runs it; export the checkpoint with --export FILE",
    "manifest.json": "it is an image: `podman container restore` runs it; export the checkpoint with --export FILE",
    "pre-checkpoint": "it holds a pre-checkpoint, a part only: checkpoint without --pre-checkpoint",
}
"""Members that archives of another kind have, and why those are not taken in."""


def image_name(path: str) -> str | None:
    """The file name of the image that a member is, None if it is none."""
    directory, _, name = path.rpartition("/")
    return name if directory == CHECKPOINT and name.endswith(".img") and name != ".img" else None


def image_path(name: str) -> str:
    """The opposite."""
    return f"{CHECKPOINT}/{name}"


def is_page_file(name: str) -> bool:
    """The image holds pages, and nothing else."""
    return name.startswith("pages-")
