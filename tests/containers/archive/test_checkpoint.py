"""Checkpoint archives of containers: taken in as commits and written back, the same bit for bit.

That podman restores what is written is shown in ``tests/real/test_podman.py``.
"""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard
from blake3 import blake3

from relive.containers.archive import unpacking
from relive.containers.archive.compression import Compression, by_suffix
from relive.containers.archive.exporting import export_checkpoint
from relive.errors import HostUnfit, KeyMissing, ObjectCorrupt, UsageError
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import messages
from relive.maintenance.verify import verify
from relive.model.commit import EntryKind, HostFacts, Layer, LayerKind, Manifest, TargetKind, Trigger
from relive.operations.imports import import_archive
from relive.remotes.exporting import export
from relive.remotes.pull import pull
from relive.remotes.push import push
from relive.store.manifests import canonical
from remotes.conftest import silent
from store import independent_reader
from store.builders import commit, contents
from store.test_damage import frame_of

from .checkpoints import FIRST, SECOND, changed, contents_of, entries_of, image, plain, tar_of

HERE = HostFacts(name="here", kernel="6.1", criu="4.2", machine="x86_64")


def take(host, path, *, force=False, here=HERE):
    def no_keys():
        raise AssertionError("a checkpoint archive has no keys")

    return import_archive(host.store, path, here, keys=no_keys, force=force, show=silent)


def write(host, commit_id, path, compression=Compression.NONE, *, only_to_inspect=False, force=False):
    return export_checkpoint(
        host.store,
        commit_id,
        path,
        compression,
        only_to_inspect=only_to_inspect,
        force=force,
        show=silent,
    )


def test_a_podman_archive_becomes_a_commit_of_its_container(sender):
    taken = take(sender, FIRST)
    manifest = sender.store.manifest(taken.commit)
    target = manifest.target
    assert (target.kind, target.name, target.command) == (TargetKind.CONTAINER, "counter", ["/bin/counter"])
    assert [(one.pid, one.command, one.threads) for one in target.processes] == [(1, "counter", 1)]
    assert manifest.container.engine == "podman"
    assert manifest.container.image == "localhost/counter:latest"
    assert manifest.container.runtime == "runc"
    assert manifest.container.id == target.life
    assert (manifest.trigger, manifest.version, manifest.parents) == (Trigger.IMPORT, 4, [])
    assert manifest.pause_us == 153_859
    assert manifest.host.machine == "x86_64"
    assert taken.is_new and taken.held == 0
    assert sender.store.get(taken.commit).new_bytes == taken.bytes > 0


def test_it_holds_every_byte_of_the_archive(sender):
    original = contents_of(plain(FIRST))
    images, files = contents(sender.store, take(sender, FIRST).commit)
    assert {f"checkpoint/{name}": data for name, data in images.items()} | files == original


def test_its_name_says_what_it_holds_as_the_format_has_it(sender):
    """docs/format.md, "Containers"."""
    hasher = blake3()
    for name, data in sorted(contents_of(plain(FIRST)).items()):
        hasher.update(name.encode() + b"\0" + blake3(data).digest())
    assert sender.store.manifest(take(sender, FIRST).commit).capture == hasher.hexdigest()


def test_a_later_checkpoint_of_the_same_container_costs_what_changed(sender):
    first, second = take(sender, FIRST), take(sender, SECOND)
    assert sender.store.manifest(second.commit).parents == [first.commit]
    assert second.bytes < first.bytes / 5
    assert second.held == 6 and second.parts == 3  # what changed: the log, what CRIU measured; and the pack
    images = {name: data for name, data in contents_of(plain(SECOND)).items() if name.endswith(".img")}
    assert {
        f"checkpoint/{name}": data for name, data in contents(sender.store, second.commit)[0].items()
    } == images


def test_an_earlier_checkpoint_that_comes_later_has_no_parent_and_costs_little_all_the_same(sender, tmp_path):
    old = [*changed(FIRST, {})]
    for entry in old:
        entry.facts["mtime"] = 1_000_000_000
    (tmp_path / "old.tar").write_bytes(tar_of(old))
    take(sender, SECOND)
    taken = take(sender, tmp_path / "old.tar")
    manifest = sender.store.manifest(taken.commit)
    assert (manifest.parents, manifest.taken_wall_ns) == ([], 1_000_000_000_000_000_000)
    assert taken.bytes < 4096


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["tar", "tar.gz", "tar.zst"])
def test_the_same_archive_in_other_wrapping_is_the_same_commit(sender, tmp_path, pack):
    """Whatever its file is called; the paths may begin with ``./``, as those of `tar -c .` do."""
    first = take(sender, FIRST)
    entries = [
        type(entry)("./" + entry.name, entry.data, entry.kind, entry.facts)
        for entry in entries_of(plain(FIRST))
    ]
    (tmp_path / "x").write_bytes(pack(tar_of([type(entries[0])("./", b"", b"5"), *entries])))
    again = take(sender, tmp_path / "x")
    assert (again.commit, again.is_new, again.parts, again.bytes) == (first.commit, False, 0, 0)
    assert again.held == 1


def test_what_the_kubelet_wrote_is_told_by_its_annotations(sender, tmp_path):
    """CRI-O and containerd name the container elsewhere, and say when it was checkpointed."""
    config = {
        "id": "52d907dc8f75",
        "name": "",
        "rootfsImageName": "docker.io/library/busybox:latest",
        "runtime": "io.containerd.runc.v2",
        "createdTime": "2025-11-07T11:48:41.5Z",
        "checkpointedAt": "2025-11-07T11:58:58.000000123+01:00",
    }
    spec = {"ociVersion": "1.1.0", "annotations": {"io.kubernetes.cri.container-name": "web"}}
    files = {"config.dump": json.dumps(config).encode(), "spec.dump": json.dumps(spec).encode()}
    (tmp_path / "x.tar").write_bytes(tar_of(changed(FIRST, files)))
    manifest = sender.store.manifest(take(sender, tmp_path / "x.tar").commit)
    assert (manifest.target.name, manifest.container.engine) == ("web", "containerd")
    assert manifest.taken_wall_ns == 1_762_513_138_000_000_123
    assert manifest.target.command == []


def test_a_commit_that_lost_a_part_is_whole_when_it_is_imported_again(sender):
    """Not only the second one, which refers to the first: both, and they keep their ids."""
    one, two = take(sender, FIRST).commit, take(sender, SECOND).commit
    for entry in sender.store.manifest(two).layers[0].entries:
        if entry.object is not None:
            sender.store.internals.objects.delete(entry.object)
    assert take(sender, SECOND).commit == two
    assert take(sender, FIRST).commit == one
    assert verify(sender.store, data=True).problems == []


def test_a_commit_of_another_machine_is_refused_unless_forced(sender, tmp_path):
    core = contents_of(plain(FIRST))["checkpoint/core-1.img"]
    entry = pb.CoreEntry.FromString(messages("core-1.img", core)[0])
    entry.mtype = 3
    (tmp_path / "arm.tar").write_bytes(tar_of(changed(FIRST, {"checkpoint/core-1.img": image(core, entry)})))
    with pytest.raises(HostUnfit, match="aarch64"):
        take(sender, tmp_path / "arm.tar")
    assert sender.store.log() == []
    assert take(sender, tmp_path / "arm.tar", force=True).is_new


def test_an_image_too_large_for_a_bundle_is_kept_beside_it(sender, tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "IMAGE_MOST", 4000)
    taken = take(sender, FIRST)
    paths = [entry.path for entry in sender.store.manifest(taken.commit).layers[0].entries]
    assert "checkpoint/cgroup.img" in paths
    write(sender, taken.commit, tmp_path / "x.tar")
    assert contents_of((tmp_path / "x.tar").read_bytes()) == contents_of(plain(FIRST))


# -- a commit as any other -------------------------------------------------------------------------------------------------


def test_it_is_verified_pushed_pulled_and_exported_as_any_commit(
    sender, receiver, directory_remote, tmp_path
):
    first, second = take(sender, FIRST).commit, take(sender, SECOND).commit
    assert verify(sender.store, data=True).problems == []
    push(sender.store, directory_remote, second, tag=None, force=False, show=silent)
    pull(receiver.store, directory_remote, second, HERE, force=False, show=silent)
    assert contents(receiver.store, second) == contents(sender.store, second)
    export(sender.store, first, tmp_path / "first.relive", keys=None, force=False, show=silent)
    assert take(receiver, tmp_path / "first.relive").commit == first
    assert verify(receiver.store, data=True).problems == []
    write(receiver, second, tmp_path / "second.tar")
    assert contents_of((tmp_path / "second.tar").read_bytes()) == contents_of(plain(SECOND))


def test_the_independent_reader_finds_its_images(sender):
    take(sender, FIRST)
    second = take(sender, SECOND).commit
    found = independent_reader.read_images(sender.home / "store", second, sender.keyring.public_key)
    assert found == contents(sender.store, second)[0]


def test_dropping_it_frees_all_but_what_another_shares(sender):
    first, second = take(sender, FIRST).commit, take(sender, SECOND).commit
    sender.store.delete(first)
    assert verify(sender.store, data=True).problems == []
    assert contents(sender.store, second)
    sender.store.delete(second)
    assert not list((sender.home / "store" / "objects").glob("*/*"))
    assert not list((sender.home / "store" / "packs").iterdir())


def test_a_store_that_takes_containers_is_of_a_version_that_knows_them(sender, receiver, tmp_path):
    def version(host):
        return json.loads((host.home / "store" / "format").read_text())["version"]

    (sender.home / "store" / "format").write_text('{"version": 2}')
    service = commit(sender.store)
    assert version(sender) == 7
    taken = take(sender, FIRST).commit
    assert version(sender) == 7
    assert (sender.store.manifest(service.id).version, sender.store.manifest(taken).version) == (4, 4)
    assert b"container" not in canonical(sender.store.manifest(service.id))
    export(sender.store, taken, tmp_path / "x", keys=None, force=False, show=silent)
    (receiver.home / "store" / "format").write_text('{"version": 2}')
    take(receiver, tmp_path / "x")
    assert version(receiver) == 7


def test_a_sealed_store_takes_it_in_sealed_and_not_at_all_without_its_key(sender):
    key = sender.keyring.make_store_key()
    second = take(sender, SECOND).commit
    found = independent_reader.read_images(sender.home / "store", second, sender.keyring.public_key, key)
    assert found == contents(sender.store, second)[0]
    (sender.home / "keys" / "store.key").unlink()
    with pytest.raises(KeyMissing):
        take(sender, FIRST)
    assert [line.id for line in sender.store.log()] == [second]


@pytest.mark.parametrize("change", ["version", "kind", "container"])
def test_a_manifest_that_contradicts_itself_is_refused(sender, change):
    value = json.loads(canonical(sender.store.manifest(take(sender, FIRST).commit)))
    match change:
        case "version":
            value["version"] = 2
        case "kind":
            value["target"]["kind"] = "capsule"
        case "container":
            del value["container"]
    with pytest.raises(ValueError, match="contradict"):
        Manifest.model_validate_json(json.dumps(value))


# -- written back ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"])
def test_it_is_written_back_the_same(sender, receiver, tmp_path, suffix):
    """Contents, modes, owners and times of the container's own members, and all images; equal commits make equal files."""
    taken = take(sender, FIRST).commit
    target, again = tmp_path / f"x{suffix}", tmp_path / f"y{suffix}"
    for path in (target, again):
        write(sender, taken, path, by_suffix(path))
    assert target.read_bytes() == again.read_bytes()
    wanted, got = (
        {entry.name: entry for entry in entries_of(data)} for data in (plain(FIRST), plain(target))
    )
    images = {name for name in wanted if name.endswith(".img")}
    assert {name: entry.data for name, entry in got.items()} == {n: e.data for n, e in wanted.items()}
    assert {n: e for n, e in got.items() if n not in images} == {
        n: e for n, e in wanted.items() if n not in images
    }
    assert take(sender, target).commit == taken
    assert take(receiver, target).is_new


def test_a_name_that_asks_for_no_compression_is_refused(tmp_path):
    with pytest.raises(UsageError, match="does not say"):
        by_suffix(tmp_path / "x.relive")


def test_a_service_that_is_no_container_is_refused_or_written_to_be_looked_into(sender, tmp_path):
    one = commit(sender.store)
    with pytest.raises(UsageError, match="no container") as caught:
        write(sender, one.id, tmp_path / "x.tar")
    assert "--format checkpointctl" in caught.value.remedy
    assert list(tmp_path.glob("*x.tar*")) == []
    write(sender, one.id, tmp_path / "x.tar", only_to_inspect=True)
    found = contents_of((tmp_path / "x.tar").read_bytes())
    images = contents(sender.store, one.id)[0]
    assert {name: data for name, data in found.items() if name.startswith("checkpoint/")} == {
        f"checkpoint/{name}": data for name, data in images.items()
    }
    config, spec = json.loads(found["config.dump"]), json.loads(found["spec.dump"])
    assert (config["id"], config["name"], config["rootfsImageName"]) == (one.id, "pay", "")
    assert spec["process"]["args"] == ["pay", "--now"]
    statistics = pb.StatsEntry.FromString(found["stats-dump"][12:])
    assert (statistics.dump.frozen_time, statistics.dump.pages_written) == (1234, 1)


def test_what_is_looked_into_tells_older_readers_how_many_pages_there_are(sender, tmp_path):
    """CRIU 4.2 writes 0 where checkpointctl 1.3 looks, which then finds a process without memory."""
    taken = take(sender, FIRST).commit
    write(sender, taken, tmp_path / "x.tar", only_to_inspect=True)
    name = "checkpoint/pagemap-1.img"
    before, after = (
        [pb.PagemapEntry.FromString(body) for body in messages(name, contents_of(data)[name])[1:]]
        for data in (plain(FIRST), (tmp_path / "x.tar").read_bytes())
    )
    assert {entry.compat_nr_pages for entry in before} == {0}
    assert [entry.compat_nr_pages for entry in after] == [entry.nr_pages for entry in before]
    for entry in after:
        entry.compat_nr_pages = 0
    assert after == before


def test_what_was_written_to_be_looked_into_is_not_taken_for_a_container(sender, tmp_path):
    write(sender, commit(sender.store).id, tmp_path / "x.tar", only_to_inspect=True)
    with pytest.raises(Exception, match="looked into"):
        take(sender, tmp_path / "x.tar")


def test_a_file_that_exists_is_replaced_only_by_force(sender, tmp_path):
    taken = take(sender, FIRST).commit
    (tmp_path / "x.tar").write_text("before")
    with pytest.raises(UsageError, match="exists"):
        write(sender, taken, tmp_path / "x.tar")
    write(sender, taken, tmp_path / "x.tar", force=True)
    assert contents_of((tmp_path / "x.tar").read_bytes()) == contents_of(plain(FIRST))


def test_what_is_damaged_in_the_store_is_not_written(sender, tmp_path):
    taken = take(sender, FIRST).commit
    entry = next(one for one in sender.store.manifest(taken).layers[0].entries if one.path == "spec.dump")
    assert entry.object is not None
    path, begin = frame_of(sender.store, taken)
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[begin + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ObjectCorrupt):
        write(sender, taken, tmp_path / "x.tar")
    assert list(tmp_path.glob("*x.tar*")) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "../etc/passwd"}, "leads out"),
        ({"path": "/etc/passwd"}, "leads out"),
        ({"kind": EntryKind.LINK, "link": "/etc", "object": None}, "is a link"),
        ({"size": 1}, "has 1 bytes"),
    ],
)
def test_a_commit_from_elsewhere_cannot_make_a_harmful_archive(sender, tmp_path, change, words):
    """Who signed it is trusted to have made it, not to have made it well."""
    manifest = sender.store.manifest(take(sender, FIRST).commit)
    entries = [
        entry.model_copy(update=change) if entry.path == "spec.dump" else entry
        for entry in manifest.layers[0].entries
    ]
    layer = Layer(point="", kind=LayerKind.ARCHIVE, entries=entries)
    with sender.store.taking_in():
        images = sender.store.stage()
        sender.store.images.lay_out(manifest, images.images)
        taken = sender.store.ingest_images(images.images)
        one = sender.store.add(manifest.model_copy(update={"layers": [layer], "images": taken.images}), taken)
        images.discard()
    with pytest.raises(ObjectCorrupt, match=words):
        write(sender, one.id, tmp_path / "x.tar")
    assert list(tmp_path.glob("*x.tar*")) == []
