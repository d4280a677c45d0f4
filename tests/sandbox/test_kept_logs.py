"""Logs of a branch that was kept: those that its commit has open are there again, and nothing else is made."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import write_entries
from relive.sandbox.kept_logs import make_kept_logs

MAGIC = struct.pack("<II", 0x54564319, 0x56303138)  # of files.img


def opened(number: int, name: str, size: int) -> pb.FileEntry:
    entry = pb.FileEntry(type=1, id=number)
    entry.reg.id, entry.reg.flags, entry.reg.pos, entry.reg.name, entry.reg.size = number, 0, 0, name, size
    return entry


@pytest.mark.parametrize("begin", ["", "/"])
def test_they_are_as_long_as_they_were(tmp_path: Path, begin: str) -> None:
    images, io = tmp_path / "images", tmp_path / "io"
    images.mkdir()
    io.mkdir()
    (images / "files.img").write_bytes(MAGIC)
    place = f"{begin}run/relive/io"
    names = [
        f"{place}/outlet-3.log",
        f"{place}/outlet-3.log/../../x",
        f"{place}/stdout.log",
        "srv/outlet-4.log",
    ]
    write_entries(images / "files.img", [opened(at + 1, name, 20) for at, name in enumerate(names)])
    make_kept_logs(images, io)
    assert [(path.name, path.stat().st_size) for path in io.iterdir()] == [("outlet-3.log", 20)]
    assert not (tmp_path / "x").exists()
