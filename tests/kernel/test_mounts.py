"""The table of mounts, as the kernel writes it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from relive.kernel import mounts
from relive.kernel.mounts import (
    Mount,
    MountFlag,
    _escape,
    _parse_line,
    detached,
    forget_names,
    make_private,
    mount,
    mount_overlay,
    read_mounts,
    unmount,
)
from relive.kernel.namespaces import Namespace, unshare

from .helpers import in_child, needs_root

LINE = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"


def test_the_example_of_the_manual_page():
    assert _parse_line(LINE) == Mount(36, "98:0", "/mnt1", "/mnt2", "ext3", "/dev/root", "rw,noatime")


@pytest.mark.parametrize("optional", ["", "shared:1 ", "shared:1 master:2 propagate_from:3 unbindable "])
def test_any_number_of_optional_fields(optional):
    line = f"36 35 98:0 / /x rw {optional}- tmpfs tmpfs rw"
    assert (_parse_line(line).point, _parse_line(line).kind) == ("/x", "tmpfs")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"/a\040b", "/a b"),
        (r"/a\011b", "/a\tb"),
        (r"/a\012b", "/a\nb"),
        (r"/a\134b", "/a\\b"),
        (r"/a\134040b", r"/a\040b"),
        (r"/a\134134b", r"/a\134b"),
        ("/\udcff", "/\udcff"),
    ],
)
def test_escapes_are_undone_once(written, meant):
    found = _parse_line(f"36 35 98:0 {written} {written} rw - ext4 {written} rw")
    assert (found.point, found.root, found.source) == (meant, meant, meant)


def test_a_dash_in_a_name_does_not_end_the_optional_fields():
    assert _parse_line("36 35 98:0 / /a-b rw - ext4 x-y rw").point == "/a-b"


def test_this_process_has_a_root():
    found = read_mounts()
    assert any(one.point == "/" for one in found)
    assert len({one.identifier for one in found}) == len(found)


STRANGE = [
    b"a b",
    b"new\nline",
    b"tab\t",
    b"back\\slash",
    b"\\040",
    b"\xff",
    "\u2028".encode(),
    b"\x0b",
    b"\r",
    b"#",
]


@needs_root
@pytest.mark.parametrize(
    "name",
    [
        *STRANGE,
    ],
    ids=ascii,
)
def test_a_mount_point_of_any_name_is_found(tmp_path, name):
    point = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)

    def work() -> bool:
        unshare(Namespace.MOUNT)
        mounts.make_private()
        Path(point).mkdir()
        mount("tmpfs", Path(point), "tmpfs")
        return any(one.point == point and one.kind == "tmpfs" for one in read_mounts())

    assert in_child(work)


@pytest.mark.parametrize(
    ("path", "escaped"), [("/a:b", r"/a\:b"), ("/a,b", r"/a\,b"), ("/a\\b", r"/a\\b"), ("/a b", "/a b")]
)
def test_overlayfs_wants_colons_and_commas_escaped(path, escaped):
    assert _escape(Path(path)) == escaped


@needs_root
@pytest.mark.parametrize("name", ["plain", "a:b", "a,b", "a\\b", "a b"])
def test_an_overlay_over_a_directory_of_any_name(tmp_path, name):
    """On a tmpfs, since the temporary directory may lie on an overlay itself."""

    def work() -> list[str]:
        unshare(Namespace.MOUNT)
        mounts.make_private()
        mount("tmpfs", tmp_path, "tmpfs")
        top = tmp_path / name
        for part in ("lower", "upper", "work", "merged"):
            (top / part).mkdir(parents=True)
        (top / "lower" / "old").touch()
        mount_overlay(top / "merged", lower=[top / "lower"], upper=top / "upper", work=top / "work")
        (top / "merged" / "new").touch()
        seen = sorted(os.listdir(top / "merged")) + sorted(os.listdir(top / "upper"))
        unmount(top / "merged")
        return seen

    assert in_child(work) == ["new", "old", "new"]


@needs_root
def test_a_name_is_created_over_a_whiteout_that_came_behind_an_overlays_back(tmp_path: Path) -> None:
    def work() -> bool:
        unshare(Namespace.MOUNT)
        make_private()
        mount("tmpfs", tmp_path, "tmpfs")
        merged, upper = tmp_path / "merged", tmp_path / "upper"
        for part in ("lower", "upper", "work", "merged"):
            (tmp_path / part).mkdir()
        mount_overlay(merged, lower=[tmp_path / "lower"], upper=upper, work=tmp_path / "work")
        assert not (merged / "new").exists()  # from here on it remembers that
        os.mknod(upper / "new", stat.S_IFCHR, 0)
        with pytest.raises(OSError, match="Stale"):
            (merged / "new").touch()
        forget_names(merged)
        forget_names(tmp_path)  # no overlay
        (merged / "below").mkdir()
        forget_names(merged / "below")  # no root of a mount
        (merged / "new").touch()
        unmount(merged)
        return (upper / "new").is_file()

    assert in_child(work)


@needs_root
def test_a_failed_mount_names_its_point(tmp_path):
    with pytest.raises(OSError, match="mount nonsense") as caught:
        mount("x", tmp_path, "nonsense", MountFlag.NONE)
    assert caught.value.filename == str(tmp_path)


@needs_root
def test_no_way_up_leads_out_of_a_detached_directory(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("the host's")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "image").write_text("an image")

    def work() -> None:
        unshare(Namespace.MOUNT)
        make_private()
        descriptor = detached(tmp_path / "inner")
        plain = os.open(tmp_path / "inner", os.O_RDONLY | os.O_DIRECTORY)
        assert os.listdir(descriptor) == ["image"]
        assert Path(f"/proc/self/fd/{plain}/../host").exists()
        assert not Path(f"/proc/self/fd/{descriptor}/../host").exists()
        Path(f"/proc/self/fd/{descriptor}/log").write_text("written")

    in_child(work)
    assert (tmp_path / "inner" / "log").read_text() == "written"
