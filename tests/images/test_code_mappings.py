"""Code of files in the memory of a committed process."""

from __future__ import annotations

import struct
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.code_mappings import read_code_mappings
from relive.kernel.procfs import Mapping

MAGIC = struct.pack("<II", 0x54564319, 0x57492820)
READ, WRITE, EXECUTE = 1, 2, 4
FILE_PRIVATE, ANONYMOUS = 1 << 6, 1 << 9


def vma(start: int, prot: int, status: int, file: int = 0, position: int = 0) -> pb.VmaEntry:
    return pb.VmaEntry(
        start=start, end=start + 4096, pgoff=position, shmid=file, prot=prot, flags=2, status=status, fd=-1
    )


def memory(*vmas: pb.VmaEntry) -> pb.MmEntry:
    known = {field.name: 0 for field in pb.MmEntry.DESCRIPTOR.fields if field.name.startswith("mm_")}
    return pb.MmEntry(**known, exe_file_id=1, vmas=vmas)


def write(path: Path, *entries: pb.MmEntry | pb.FileEntry) -> None:
    bodies = (entry.SerializeToString() for entry in entries)
    path.write_bytes(MAGIC + b"".join(struct.pack("<I", len(body)) + body for body in bodies))


def test_only_code_that_lies_in_files_is_told(tmp_path: Path):
    file = pb.FileEntry(type=1, id=7)
    file.reg.CopyFrom(pb.RegFileEntry(id=7, flags=0, pos=0, name="/srv/shop"))
    write(tmp_path / "files.img", file)
    code = vma(0x3000, READ | EXECUTE, FILE_PRIVATE, 7, 0x1000)
    data = vma(0x5000, READ | WRITE, FILE_PRIVATE, 7)
    made_at_run_time = vma(0x7000, READ | EXECUTE, ANONYMOUS)
    write(tmp_path / "mm-4.img", memory(code, data, made_at_run_time))
    assert read_code_mappings(tmp_path, 4) == [Mapping(0x3000, 0x4000, "r-xp", 0x1000, "/srv/shop")]


def test_a_process_without_memory_of_its_own_has_none(tmp_path: Path):
    assert read_code_mappings(tmp_path, 5) == []
