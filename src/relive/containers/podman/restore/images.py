"""The image that a container needs to come back: is it there, is it the one that it was committed on, does the commit hold it?

Nothing is ever fetched from a registry: a name that podman does not have is refused here, before podman would go and look for it.
"""

from __future__ import annotations

import json
from pathlib import Path

from relive.containers.podman.command import ask
from relive.errors import RestoreUnsupported

__all__ = ["ready_image"]


def ready_image(image_id: str, name: str, committed: Path | None, graph_root: Path | None) -> None:
    """Return when podman has the image of this id.

    Args:
        name: what it was called.
        committed: the image as the commit holds it (oci-archive); None where it does not.
        graph_root: podman's storage when the container was committed; where it lists the image still, podman need not be asked.

    Raises:
        RestoreUnsupported: it is gone, or another image has its name now.
    """
    if _is_listed(graph_root, image_id) or ask("image", "exists", image_id).status == 0:
        return
    if committed is not None:
        answer = ask("load", "--quiet", "--input", committed)
        if answer.status == 0 and ask("image", "exists", image_id).status == 0:
            return
        raise RestoreUnsupported(
            f"the image {name} of the commit cannot be given to podman",
            cause=f"podman says: {answer.said or 'it is another image than the container ran on'}",
            remedy="free space in podman's storage (`podman system df`), or bring the image back and restore again",
        )
    raise _lacking(image_id, name)


def _is_listed(graph_root: Path | None, image_id: str) -> bool:
    """The image stands in the list that containers/storage keeps; a call of podman takes a tenth of a restore."""
    if graph_root is None:
        return False
    try:
        listed = json.loads((graph_root / "overlay-images" / "images.json").read_bytes())
        return any(one.get("id") == image_id for one in listed)
    except (OSError, ValueError, AttributeError):
        return False


def _lacking(image_id: str, name: str) -> RestoreUnsupported:
    kept = "commits taken with --with-image hold their image and do not need podman's"
    answer = ask("image", "inspect", "--format", "{{.Id}}", name)
    if answer.status == 0:
        return RestoreUnsupported(
            f"the image {name} is another one now",
            cause=f"podman has {answer.output.strip()[:12]} under this name, the container was committed on {image_id[:12]}: "
            "the files that it has open would not be those it knows",
            remedy=f"bring the image {image_id[:12]} back (`podman load`, or build it as it was); {kept}",
        )
    return RestoreUnsupported(
        f"the image {name} is gone",
        cause=f"podman has no image {image_id[:12]}",
        remedy=f"bring it back (`podman load`, `podman pull`); {kept}",
    )
