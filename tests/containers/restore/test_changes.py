"""Tars that become trees: what they hold is laid out as it was, and nothing of them leads out of the tree."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from containers.archive.checkpoints import Entry, tar_of
from relive.containers.restore.changes import (
    delete_files,
    deleted_paths,
    likeness_of,
    unpack_layer,
    unpack_tar,
)
from relive.errors import ObjectCorrupt


@pytest.fixture
def target(tmp_path: Path) -> Path:
    made = tmp_path / "target"
    made.mkdir()
    return made


def unpacked(
    target: Path, entries: Iterable[Entry], like: list[Path] | None = None, *, layer: bool = False
) -> None:
    tar = target.with_name("some.tar")
    tar.write_bytes(tar_of(entries))
    if layer:
        unpack_layer(tar, target)
    else:
        unpack_tar(tar, target, likeness_of(like or []))


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return Entry(name, kind=kind, facts={"linkname": target})


def test_files_come_with_owner_mode_time_and_attributes(target: Path) -> None:
    facts = {
        "mode": 0o4751,
        "uid": 7,
        "gid": 8,
        "mtime": 12.5,
        "pax_headers": {"SCHILY.xattr.user.one": "two"},
    }
    unpacked(
        target,
        [
            Entry("etc/", kind=tarfile.DIRTYPE, facts={"mode": 0o750, "mtime": 3}),
            Entry("etc/file", b"text", facts=facts),
            link("etc/link", "/outside"),
            link("again", "etc/file", tarfile.LNKTYPE),
            Entry("etc/pipe", kind=tarfile.FIFOTYPE, facts={"mode": 0o600}),
        ],
    )
    found = (target / "etc/file").stat()
    assert (found.st_mode, found.st_uid, found.st_gid) == (stat.S_IFREG | 0o4751, 7, 8)
    assert found.st_mtime_ns == 12_500_000_000 and found.st_nlink == 2
    assert os.getxattr(target / "etc/file", "user.one") == b"two"
    assert (target / "etc/link").readlink() == Path("/outside")
    assert (target / "etc").stat().st_mtime_ns == 3_000_000_000
    assert stat.S_ISFIFO((target / "etc/pipe").stat().st_mode)


def test_a_directory_that_it_does_not_tell_of_looks_as_below(target: Path, tmp_path: Path) -> None:
    """Else the mode of /tmp would change with the first file in it: an overlay shows its topmost directory."""
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for place, mode in ((upper / "var", 0o711), (lower / "tmp", 0o1777), (lower / "var", 0o700)):
        place.mkdir(parents=True)
        place.chmod(mode)
        os.chown(place, 5, 6)
    (lower / "led").symlink_to("tmp")
    unpacked(target, [Entry(name, b"x") for name in ("tmp/a", "var/b", "led/c")], [upper, lower])
    modes = [stat.S_IMODE((target / name).stat().st_mode) for name in ("tmp", "var", "led")]
    assert modes == [0o1777, 0o711, 0o755]
    assert (target / "tmp").stat().st_gid == 6 and (target / "led").stat().st_gid == 0


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("../out", b"x")],
        [Entry("a/../../out", b"x")],
        [link("a", ".."), Entry("a/out", b"x")],
        [link("a", "/"), Entry("a/out", b"x")],
        [Entry("file", b"x"), Entry("file/out", b"x")],
        [link("a", "../out", tarfile.LNKTYPE)],
        [link("s", "/etc/passwd"), link("a", "s", tarfile.LNKTYPE)],
        [link("a", "not there", tarfile.LNKTYPE)],
        [Entry("a", kind=b"Z")],
    ],
    ids=lambda entries: "-".join(entry.name for entry in entries),
)
def test_what_leads_out_is_refused(target: Path, entries: list[Entry]) -> None:
    with pytest.raises(ObjectCorrupt):
        unpacked(target, entries)
    assert not target.with_name("out").exists()


def test_an_absolute_path_is_one_in_the_tree(target: Path) -> None:
    unpacked(target, [Entry("/etc/file", b"x")])
    assert (target / "etc/file").read_bytes() == b"x"


def test_a_link_is_replaced_and_never_written_through(target: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    unpacked(target, [link("a", str(tmp_path / "outside")), Entry("a", b"theirs")])
    assert (tmp_path / "outside").read_text() == "mine" and (target / "a").read_text() == "theirs"


def test_overlayfs_is_not_told_to_look_elsewhere(target: Path) -> None:
    facts = {"pax_headers": {"SCHILY.xattr.trusted.overlay.redirect": "/etc"}}
    whiteout = {"devmajor": 0, "devminor": 0}
    unpacked(target, [Entry("a", b"x", facts=facts), Entry("w", kind=tarfile.CHRTYPE, facts=whiteout)])
    assert os.listxattr(target / "a") == [] and not (target / "w").exists()


@pytest.mark.parametrize("cut", [100, 700, 1200])
def test_what_is_cut_off_or_no_tar_is_refused(target: Path, cut: int) -> None:
    tar = target.with_name("some.tar")
    tar.write_bytes(tar_of([Entry("a", b"x" * 2000)])[:cut])
    with pytest.raises(ObjectCorrupt):
        unpack_tar(tar, target, likeness_of([]))


def test_a_layer_hides_what_lies_below_it(target: Path) -> None:
    unpacked(target, [Entry("a/.wh.gone"), Entry("b/.wh..wh..opq"), Entry("b/new", b"x")], layer=True)
    hidden = (target / "a/gone").lstat()
    assert stat.S_ISCHR(hidden.st_mode) and hidden.st_rdev == 0
    assert os.getxattr(target / "b", "trusted.overlay.opaque") == b"y"
    assert sorted(path.name for path in (target / "b").iterdir()) == ["new"]
    with pytest.raises(ObjectCorrupt):
        unpacked(target, [Entry("a/.wh...")], layer=True)


def test_deleted_files_are_hidden(target: Path) -> None:
    delete_files(deleted_paths(b'["/etc/gone", "top"]'), target, likeness_of([]))
    assert all(stat.S_ISCHR((target / name).lstat().st_mode) for name in ("etc/gone", "top"))
    assert deleted_paths(b"null") == []


@pytest.mark.parametrize("data", [b"{", b'{"a": 1}', b"[1]", b"[" * 100_000])
def test_a_list_of_deleted_files_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ObjectCorrupt):
        deleted_paths(data)


def test_no_deleted_file_leads_out(target: Path) -> None:
    with pytest.raises(ObjectCorrupt):
        delete_files(["../out"], target, likeness_of([]))
