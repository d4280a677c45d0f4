"""The image that a commit holds: only the very one that its container was made from is taken."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import cast

import pytest

from containers.archive.checkpoints import Entry, tar_of
from relive.containers.restore.image import IMAGE_MEMBER, image_layers
from relive.containers.restore.specification import ContainerSpecification
from relive.errors import ImageUnavailable, ObjectCorrupt
from relive.model.commit import CommitId, EntryKind, FileEntry
from relive.store import Store

COMMIT = CommitId("c" * 64)


class Held:
    """In the place of the files of a store that holds one archive."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive

    def content_file(self, _: FileEntry) -> Path:
        return self.archive

    def lay_out_tree(self, name: str, make: Callable[[Path], None]) -> Path:
        target = self.archive.with_name(name)
        if not target.exists():
            target.mkdir()
            make(target)
        return target


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def oci(
    layers: list[bytes], changes: Mapping[str, object] = MappingProxyType({})
) -> tuple[str, dict[str, bytes]]:
    """An image's id, and the files of its archive."""
    config = b"{}"
    blobs = {digest(data): data for data in (config, *layers)}
    manifest = json.dumps(
        {
            "config": {"digest": f"sha256:{digest(config)}"},
            "layers": [{"digest": f"sha256:{digest(one)}"} for one in layers],
            **changes,
        }
    ).encode()
    blobs[digest(manifest)] = manifest
    files = {f"blobs/sha256/{name}": data for name, data in blobs.items()}
    files["index.json"] = json.dumps({"manifests": [{"digest": f"sha256:{digest(manifest)}"}]}).encode()
    return digest(config), files


def layers_of(tmp_path: Path, image: str, files: dict[str, bytes]) -> list[Path]:
    archive = tmp_path / "image.tar"
    archive.write_bytes(tar_of(Entry(name, data) for name, data in files.items()))
    entry = FileEntry(path=IMAGE_MEMBER, kind=EntryKind.FILE, object="0" * 64)
    specification = ContainerSpecification(
        image, "name:1", "", {}, frozenset(), [], [], (0, 0), {IMAGE_MEMBER: entry}
    )
    return image_layers(cast(Store, SimpleNamespace(files=Held(archive))), COMMIT, specification)


def test_its_layers_are_laid_out_topmost_first(tmp_path: Path) -> None:
    lower = gzip.compress(tar_of([Entry("a", b"1"), Entry("b", b"1")]))
    upper = tar_of([Entry(".wh.a"), Entry("b", b"2")])
    top, bottom = layers_of(tmp_path, *oci([lower, upper]))
    assert (top / "b").read_bytes() == b"2" and (top / "a").is_char_device()
    assert (bottom / "a").read_bytes() == b"1"


def test_another_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ObjectCorrupt) as caught:
        layers_of(tmp_path, "f" * 64, oci([tar_of([])])[1])
    assert "not ffffffffffff" in str(caught.value.cause)


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": []},
        {"layers": [{"digest": "sha256:../../etc"}]},
        {"layers": [{"digest": f"sha256:{'0' * 64}"}]},
        {"layers": 5},
        {"config": None},
        {"layers": [{"digest": f"sha256:{digest(b'x')}"}] * 501},
    ],
    ids=["no layer", "a path", "a missing layer", "a number", "no configuration", "too many layers"],
)
def test_what_is_no_image_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ObjectCorrupt):
        layers_of(tmp_path, *oci([tar_of([])], changes))


def test_a_layer_with_other_content_than_its_name_says_is_refused(tmp_path: Path) -> None:
    layer = tar_of([Entry("a", b"1")])
    image, files = oci([layer])
    files[f"blobs/sha256/{digest(layer)}"] = tar_of([Entry("a", b"2")])
    with pytest.raises(ObjectCorrupt) as caught:
        layers_of(tmp_path, image, files)
    assert "other content" in str(caught.value.cause)
    assert not list(tmp_path.glob("*.blob"))


def test_a_commit_that_does_not_tell_its_image_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageUnavailable) as caught:
        image_layers(
            cast(Store, None),
            COMMIT,
            ContainerSpecification("", "name:1", "", {}, frozenset(), [], [], (0, 0), {}),
        )
    assert "does not tell" in str(caught.value.cause)
    # A podman that fails is not taken for one that has no such image.
    with pytest.raises(ImageUnavailable) as caught:
        image_layers(
            cast(Store, None),
            COMMIT,
            ContainerSpecification("a" * 64, "name:1", "", {}, frozenset(), [], [], (0, 0), {}),
        )
    assert "cannot be asked" in caught.value.message
