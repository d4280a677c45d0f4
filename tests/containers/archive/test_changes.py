"""Layers become the tars that a checkpoint archive has, with all that an entry says; what leads out of them is refused."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from relive.containers.archive.changes import changed_files, volume_archive
from relive.errors import ObjectCorrupt
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind


def layer(*entries: FileEntry) -> Layer:
    return Layer(point="/", kind=LayerKind.OVERLAY, entries=list(entries))


def test_entries_keep_what_they_say(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"text")
    target = tmp_path / "made.tar"
    changed_files(
        layer(
            FileEntry(path="a", kind=EntryKind.DIRECTORY, mode=0o750, uid=5, gid=6),
            FileEntry(
                path="a/f",
                kind=EntryKind.FILE,
                mode=0o4755,
                size=4,
                mtime_ns=1_500_000_000,
                object="0" * 64,
                attributes={"security.capability": "0100ff00"},
            ),
            FileEntry(path="a/l", kind=EntryKind.LINK, link="../x"),
            FileEntry(path="a/p", kind=EntryKind.PIPE),
            FileEntry(path="a/gone", kind=EntryKind.WHITEOUT),
            FileEntry(path="a/sock", kind=EntryKind.SOCKET),
        ),
        lambda _: content,
        target,
    )
    with tarfile.open(target) as tar:
        found = {one.name: one for one in tar}
        file = tar.extractfile("a/f")
        assert file is not None and file.read() == b"text"
    assert list(found) == ["a", "a/f", "a/l", "a/p"]  # deleted.files has the one, CRIU makes the other
    assert (found["a"].mode, found["a"].uid, found["a"].gid) == (0o750, 5, 6)
    assert found["a/f"].mode == 0o4755 and found["a/f"].mtime == 1.5
    raw = found["a/f"].pax_headers["SCHILY.xattr.security.capability"]
    assert raw.encode("utf-8", "surrogateescape") == bytes.fromhex("0100ff00")
    assert found["a/l"].linkname == "../x" and found["a/p"].isfifo()


@pytest.mark.parametrize("path", ["/etc/passwd", "../out", "a/../../out"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ObjectCorrupt, match="leads out"):
        changed_files(
            layer(FileEntry(path=path, kind=EntryKind.DIRECTORY)), lambda _: tmp_path, tmp_path / "made"
        )


def test_volumes_have_podmans_names() -> None:
    assert volume_archive("data") == "volumes/data.tar"
