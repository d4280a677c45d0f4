"""Images of commits of version 1, each kept whole as an object. They are only read; new commits are written as version 2."""

from __future__ import annotations

import os
from pathlib import Path

from relive.model.commit import Manifest
from relive.store.bundle import BUNDLE, plain_name, write_bundle
from relive.store.objects import Objects

__all__ = ["lay_out_whole_images"]


def lay_out_whole_images(manifest: Manifest, directory: Path, objects: Objects) -> None:
    """Put the images into ``directory`` (of the same file system), checked; page files as links to the objects.

    Raises:
        ObjectMissing, ObjectCorrupt: an image is gone or damaged; the directory is then of no use.
    """
    for image in manifest.images:
        source = objects.verified(image.object)
        if image.name == BUNDLE:
            write_bundle(source.read_bytes(), directory)
        else:
            os.link(source, directory / plain_name(image.name))
