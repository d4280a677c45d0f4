"""An OCI image of a container's commit: a layout that holds together by its digests, and annotations by which engines know it.

That podman loads and restores one is shown in ``tests/real/test_watching.py``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile

import pytest
import zstandard

from relive.containers.archive.compression import Compression
from relive.containers.archive.oci_image import export_image, image_name_of
from relive.errors import UsageError
from relive.model.commit import HostFacts, TargetKind
from remotes.conftest import silent
from store.builders import commit

from .checkpoints import FIRST, contents_of, plain
from .test_checkpoint import take

UNPACK = {
    Compression.NONE: bytes,
    Compression.GZIP: gzip.decompress,
    Compression.ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


def written(host, commit_id, path, compression=Compression.GZIP, *, force=False):
    export_image(host.store, commit_id, path, compression, force=force, show=silent)
    with tarfile.open(path) as file:
        return {one.name: file.extractfile(one).read() for one in file.getmembers() if one.isfile()}


def followed(files, descriptor):
    """The blob that a descriptor names, by digest and size."""
    blob = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert hashlib.sha256(blob).hexdigest() == descriptor["digest"].removeprefix("sha256:")
    assert len(blob) == descriptor["size"]
    return blob


@pytest.mark.parametrize("compression", Compression)
def test_it_leads_by_digests_from_the_index_to_the_checkpoint(sender, tmp_path, compression):
    files = written(sender, take(sender, FIRST).commit, tmp_path / "x.tar", compression)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (described,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(followed(files, described))
    config = json.loads(followed(files, manifest["config"]))
    (layer,) = manifest["layers"]
    suffix = "" if compression is Compression.NONE else f"+{compression.value}"
    assert layer["mediaType"] == f"application/vnd.oci.image.layer.v1.tar{suffix}"
    tar = UNPACK[compression](followed(files, layer))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar).hexdigest()}"]
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    with tarfile.open(fileobj=io.BytesIO(tar)) as file:
        held = {one.name: file.extractfile(one).read() for one in file.getmembers() if one.isfile()}
    assert held == contents_of(plain(FIRST))
    assert len(files) == 5


def skopeo(*words):
    done = subprocess.run(["skopeo", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="needs skopeo")
@pytest.mark.parametrize("compression", Compression)
def test_skopeo_copies_it_by_its_name_with_layer_and_annotations(sender, tmp_path, compression):
    """It is unpacked on the way, as it is for an engine, which then compares the layer with what the configuration names."""
    taken = take(sender, FIRST).commit
    files = written(sender, taken, tmp_path / "x.tar", compression)
    source = f"oci-archive:{tmp_path}/x.tar:{image_name_of(taken, sender.store.manifest(taken))}"
    shown = json.loads(skopeo("inspect", source))
    (described,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(followed(files, described))
    assert (shown["Os"], shown["Architecture"]) == ("linux", "amd64")
    assert shown["Layers"] == [layer["digest"] for layer in manifest["layers"]]

    target = tmp_path / "copy"
    skopeo("--insecure-policy", "copy", "--quiet", "--dest-decompress", source, f"dir:{target}")
    copied = json.loads((target / "manifest.json").read_bytes())
    config = json.loads((target / copied["config"]["digest"].removeprefix("sha256:")).read_bytes())
    (layer,) = copied["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    tar = (target / layer["digest"].removeprefix("sha256:")).read_bytes()
    assert contents_of(tar) == contents_of(plain(FIRST))
    assert copied["annotations"] == manifest["annotations"]


def test_its_annotations_are_those_by_which_engines_know_a_checkpoint(sender, tmp_path):
    """containerd and CRI-O look for the first, CRI-O before 1.34 for the second, podman for the last two."""
    files = written(sender, take(sender, FIRST).commit, tmp_path / "x.tar")
    (described,) = json.loads(files["index.json"])["manifests"]
    found = json.loads(followed(files, described))["annotations"]
    assert found["org.criu.checkpoint.container.name"] == "counter"
    assert found["io.kubernetes.cri-o.annotations.checkpoint.name"] == "counter"
    assert found["io.podman.annotations.checkpoint.name"] == "counter"
    assert found["io.podman.annotations.checkpoint.runtime.name"] == "runc"
    assert found["org.criu.checkpoint.rootfsImageName"] == "localhost/counter:latest"
    assert "org.criu.checkpoint.criu.version" not in found  # the archive did not tell it
    assert described["annotations"]["org.opencontainers.image.ref.name"].startswith(
        "localhost/relive-checkpoint/counter:"
    )


def test_equal_commits_make_equal_files(sender, tmp_path):
    taken = take(sender, FIRST).commit
    for name in ("a", "b"):
        written(sender, taken, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("name", "plainly"), [("web", "web"), ("Web_2.x", "web-2-x"), ("--", "container"), ("ÄÖ", "container")]
)
def test_a_name_that_no_image_can_have_is_made_one(sender, name, plainly):
    manifest = sender.store.manifest(take(sender, FIRST).commit)
    target = manifest.target.model_copy(update={"name": name})
    named = image_name_of("ab" * 32, manifest.model_copy(update={"target": target}))
    assert named == f"localhost/relive-checkpoint/{plainly}:abababababab"


def test_a_service_that_is_no_container_is_refused(sender, tmp_path):
    made = commit(sender.store)
    assert sender.store.manifest(made.id).target.kind is not TargetKind.CONTAINER
    with pytest.raises(UsageError) as caught:
        written(sender, made.id, tmp_path / "x.tar")
    assert "relive export" in (caught.value.remedy or "")
    assert list(tmp_path.glob("*.tar")) == []


def test_a_file_that_is_there_is_replaced_by_force_only(sender, tmp_path):
    taken = take(sender, FIRST, here=HostFacts(name="h", kernel="6", criu="4", machine="x86_64")).commit
    (tmp_path / "x.tar").write_text("mine")
    with pytest.raises(UsageError):
        written(sender, taken, tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_text() == "mine"
    assert written(sender, taken, tmp_path / "x.tar", force=True)
