"""The mounts of a container's commit, and what is taken from them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path

import pytest

from containers.archive.checkpoints import Entry, entries_of, tar_of
from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import write_entries
from relive.images.mounts import limit_mounts, read_mount_images

_HEAD = struct.pack("<II", 0x54564319, 0x55563928)


def mounted(images: Path, *mounts: tuple[str, int, int], outside: str = "/proc/keys") -> Path:
    """An image of mounts: (mount point, CRIU's file system type, flags)."""
    path = images / "mountpoints-5.img"
    path.write_bytes(_HEAD)
    entries = [
        pb.MntEntry(
            fstype=kind,
            mnt_id=number,
            root_dev=40 + number,
            parent_mnt_id=0,
            flags=flags,
            root="/",
            mountpoint=point,
            source="",
            options="",
            ext_key="/dev/null" if point == outside else None,
        )
        for number, (point, kind, flags) in enumerate(mounts)
    ]
    write_entries(path, entries)
    return path


def packed(path: Path, entries: list[Entry]) -> bytes:
    with tarfile.open(path, "w:gz") as file, tarfile.open(fileobj=io.BytesIO(tar_of(entries))) as source:
        for member in source:
            file.addfile(member, source.extractfile(member) if member.isreg() else None)
    return path.read_bytes()


def node(name: str, kind: bytes, major: int, minor: int) -> Entry:
    return Entry(name, kind=kind, facts={"devmajor": major, "devminor": minor, "mode": 0o666})


def test_device_nodes_can_be_opened_in_dev_only_and_the_kernels_own_is_read_only(tmp_path: Path) -> None:
    points = [("/", 17, 0), ("/dev", 5, 2), ("/dev/pts", 6, 2), ("/tmp", 5, 0), ("/sys", 2, 0), ("/d", 11, 0)]
    points.append(("/proc/keys", 5, 0))  # a device, which stands for what is hidden
    path = mounted(tmp_path, *points)
    limit_mounts(tmp_path)
    assert [one.flags for one in read_mount_images(tmp_path)[path]] == [4, 2, 2, 4, 5, 5, 0]


def test_only_harmless_devices_are_left_in_dev(tmp_path: Path) -> None:
    mounted(tmp_path, ("/dev", 5, 0))
    image = tmp_path / "tmpfs-dev-40.tar.gz.img"
    harmless = [
        node("./null", tarfile.CHRTYPE, 1, 3),
        Entry("./file", b"x"),
        node("./tty", tarfile.CHRTYPE, 5, 0),
    ]
    bad = [
        node("./sda", tarfile.BLKTYPE, 8, 0),
        node("./mem", tarfile.CHRTYPE, 1, 1),
        node("./zero", tarfile.BLKTYPE, 1, 5),  # a name that a harmless one has
        node("./sub/null", tarfile.CHRTYPE, 1, 3),
    ]
    before = packed(image, [harmless[0], *bad, *harmless[1:]])
    link = tmp_path / "kept"
    link.hardlink_to(image)
    limit_mounts(tmp_path)
    found = entries_of(gzip.decompress(image.read_bytes()))
    assert [(one.name, one.data) for one in found] == [("./null", b""), ("./file", b"x"), ("./tty", b"")]
    assert link.read_bytes() == before  # the store's own may be the same file


def test_content_that_is_harmless_stays_as_it_is(tmp_path: Path) -> None:
    mounted(tmp_path, ("/dev", 5, 0))
    image = tmp_path / "tmpfs-dev-40.tar.gz.img"
    before = packed(image, [node("./null", tarfile.CHRTYPE, 1, 3)])
    limit_mounts(tmp_path)
    assert image.read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"no tar", b"\x1f\x8b\x08\x00cut"])
def test_damaged_content_is_refused(tmp_path: Path, data: bytes) -> None:
    mounted(tmp_path, ("/dev", 5, 0))
    (tmp_path / "tmpfs-dev-40.tar.gz.img").write_bytes(data)
    with pytest.raises(ObjectCorrupt):
        limit_mounts(tmp_path)


@pytest.mark.parametrize("point", ["etc", "/../etc", "/a/../../b", ""])
def test_a_mount_point_that_leads_out_is_refused(tmp_path: Path, point: str) -> None:
    mounted(tmp_path, (point, 5, 0))
    with pytest.raises(ObjectCorrupt):
        read_mount_images(tmp_path)


@pytest.mark.parametrize("kind", [7, 13, 15, 16, 17, 18, 20, 21, 22])
def test_a_file_system_that_an_image_names_is_refused(tmp_path: Path, kind: int) -> None:
    """CRIU would mount it with root's rights: a disk, a server's files, directories of the host as an overlay."""
    mounted(tmp_path, ("/", kind, 0), ("/data", kind, 0))
    with pytest.raises(ObjectCorrupt, match="'/data'"):
        limit_mounts(tmp_path)


def test_groups_and_another_proc_are_there_to_be_read(tmp_path: Path) -> None:
    path = mounted(
        tmp_path, ("/", 17, 0), ("/sys/fs/cgroup", 23, 0), ("/old", 12, 0), ("/x", 1, 0), ("/proc", 1, 0)
    )
    limit_mounts(tmp_path)
    flags = {entry.mountpoint: entry.flags & 1 for entry in read_mount_images(tmp_path)[path]}
    assert flags == {"/": 0, "/sys/fs/cgroup": 1, "/old": 1, "/x": 1, "/proc": 0}
