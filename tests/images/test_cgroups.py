"""A container's processes are born in the control groups of who restores them, not moved to those of the original."""

from __future__ import annotations

import struct
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.cgroups import forget_groups, inherit_groups
from relive.images.image_file import read_inventory

INVENTORY = 0x58313116


def images(directory: Path, root: int, *sets: int) -> Path:
    body = pb.InventoryEntry(img_version=2, root_cg_set=root, dump_uptime=7).SerializeToString()
    (directory / "inventory.img").write_bytes(struct.pack("<II", INVENTORY, len(body)) + body)
    if sets:
        body = pb.CgroupEntry(sets=[pb.CgSetEntry(id=one) for one in sets]).SerializeToString()
        (directory / "cgroup.img").write_bytes(struct.pack("<III", 0x54564319, 0x59383330, len(body)) + body)
    return directory


def test_the_first_process_is_where_criu_is(tmp_path: Path) -> None:
    inherit_groups(images(tmp_path, 1, 2, 3))
    found = read_inventory(tmp_path)
    assert (found.root_cg_set, found.dump_uptime) == (2, 7)


def test_what_needs_nothing_stays(tmp_path: Path) -> None:
    before = images(tmp_path, 1).joinpath("inventory.img").read_bytes()
    inherit_groups(tmp_path)
    assert (tmp_path / "inventory.img").read_bytes() == before
    inherit_groups(images(tmp_path, 4, 4))
    assert read_inventory(tmp_path).root_cg_set == 4


def test_no_set_is_left_to_move_anybody_to(tmp_path: Path) -> None:
    forget_groups(images(tmp_path, 1, 2, 3))
    forget_groups(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.img"]
