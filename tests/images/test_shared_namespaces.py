"""Namespaces of a commit that come from outside."""

from __future__ import annotations

import struct
from pathlib import Path

from containers.archive.checkpoints import FIRST, contents_of, plain
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries
from relive.images.shared_namespaces import forget_network_lock, networks_from_outside, unsupported_namespace

_IMAGES = {
    name.removeprefix("checkpoint/"): data
    for name, data in contents_of(plain(FIRST)).items()
    if name.startswith("checkpoint/")
}


def laid_out(target: Path) -> Path:
    for name, data in _IMAGES.items():
        (target / name).write_bytes(data)
    return target


def test_a_network_of_which_there_is_no_image_is_taken_from_outside(tmp_path: Path) -> None:
    """As runc leaves it for a container without a network."""
    assert not any(name.startswith("netns") for name in _IMAGES)
    assert networks_from_outside(laid_out(tmp_path)) == ["relive-network"]
    (path,) = tmp_path.glob("netns-*.img")
    assert [one.ext_key for one in read_entries(path, pb.NetnsEntry)] == ["relive-network"]


def test_one_that_was_from_outside_keeps_its_name_and_one_that_was_saved_gets_one(tmp_path: Path) -> None:
    laid_out(tmp_path)
    networks_from_outside(tmp_path)
    (path,) = tmp_path.glob("netns-*.img")
    write_entries(path, [pb.NetnsEntry(ext_key="extRootNetNS")])
    other = tmp_path / "netns-99.img"
    other.write_bytes(path.read_bytes()[:8])
    write_entries(other, [pb.NetnsEntry()])
    assert networks_from_outside(tmp_path) == ["extRootNetNS", "relive-network"]


def test_the_lock_of_the_network_is_forgotten_and_all_else_kept(tmp_path: Path) -> None:
    path = laid_out(tmp_path) / "inventory.img"
    kept = tmp_path / "kept"
    kept.hardlink_to(path)
    forget_network_lock(tmp_path)
    before, after = (pb.InventoryEntry.FromString(one.read_bytes()[8:]) for one in (kept, path))
    assert after.network_lock_method == 2
    before.network_lock_method = 2
    assert before == after
    assert struct.unpack_from("<II", path.read_bytes()) == (0x58313116, len(path.read_bytes()) - 8)


def test_what_a_branch_cannot_have_is_named(tmp_path: Path) -> None:
    assert unsupported_namespace(tmp_path) is None
    (tmp_path / "pidns-7.img").touch()
    assert "PID namespace" in str(unsupported_namespace(tmp_path))
    (tmp_path / "userns-8.img").touch()
    assert "user namespace" in str(unsupported_namespace(tmp_path))
