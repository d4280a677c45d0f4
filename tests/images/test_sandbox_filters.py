"""How the filter of a branch gets behind those of the threads of a commit."""

from __future__ import annotations

import struct
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.sandbox_filters import limit_calls
from relive.kernel.sandboxcalls import SANDBOX_FILTER

from .test_rights import core, process, write


def filters(images: Path) -> pb.SeccompEntry:
    (found,) = read_entries(images / "seccomp.img", pb.SeccompEntry)
    return found


def test_threads_without_a_filter_share_the_new_one(tmp_path: Path) -> None:
    paths = [write(tmp_path, number, core([0])) for number in (5, 6)]
    assert limit_calls(tmp_path, [process(5, 5, 6), process(7)])  # 7 has no core: a zombie
    (one,) = filters(tmp_path).seccomp_filters
    assert one.filter == SANDBOX_FILTER and not one.HasField("prev")
    for path in paths:
        thread = read_entries(path, pb.CoreEntry)[0].thread_core
        assert (thread.seccomp_mode, thread.seccomp_filter) == (2, 0)


def test_it_comes_behind_those_that_a_thread_has(tmp_path: Path) -> None:
    first = core([0])
    first.thread_core.seccomp_mode, first.thread_core.seccomp_filter = 2, 1
    strict = core([0])
    strict.thread_core.seccomp_mode = 1
    paths = [write(tmp_path, 5, first), write(tmp_path, 6, core([0])), write(tmp_path, 7, strict)]
    before = pb.SeccompEntry()
    before.seccomp_filters.add(filter=b"a" * 8)
    before.seccomp_filters.add(filter=b"b" * 8, prev=0)
    body = before.SerializeToString()
    (tmp_path / "seccomp.img").write_bytes(struct.pack("<III", 0x54564319, 0x64413049, len(body)) + body)
    assert not limit_calls(tmp_path, [process(5), process(6), process(7)])
    found = filters(tmp_path).seccomp_filters
    assert [(one.filter[:1], one.prev if one.HasField("prev") else None) for one in found[:3]] == [
        (b"a", None),
        (b"b", 0),
        (SANDBOX_FILTER[:1], 1),
    ]
    threads = [read_entries(path, pb.CoreEntry)[0].thread_core for path in paths]
    assert [(one.seccomp_mode, one.seccomp_filter) for one in threads] == [(2, 2), (2, 3), (1, 0)]


def test_threads_that_get_the_first_ones_filters_are_left_alone(tmp_path: Path) -> None:
    """GIVEN a process whose first thread gives its filters to all, THEN the new one goes the same way, and only it.

    With a filter of its own, another thread would keep the kernel from giving it the others, and CRIU does not notice.
    """
    leader, other = core([0]), core([0])
    leader.thread_core.seccomp_mode, leader.thread_core.seccomp_filter = 2, 1
    other.thread_core.seccomp_mode, other.thread_core.seccomp_filter = 0, 0  # as CRIU writes it then
    paths = [write(tmp_path, 5, leader), write(tmp_path, 6, other), write(tmp_path, 7, core([0]))]
    before = pb.SeccompEntry()
    before.seccomp_filters.add(filter=b"a" * 8, flags=1)
    before.seccomp_filters.add(filter=b"b" * 8, flags=1, prev=0)
    body = before.SerializeToString()
    (tmp_path / "seccomp.img").write_bytes(struct.pack("<III", 0x54564319, 0x64413049, len(body)) + body)
    limit_calls(tmp_path, [process(5, 5, 6), process(7)])
    found = filters(tmp_path).seccomp_filters
    assert [(one.prev, one.flags) for one in found[2:]] == [(1, 1), (0, 0)]
    assert found[2].filter == found[3].filter == SANDBOX_FILTER and not found[3].HasField("prev")
    threads = [read_entries(path, pb.CoreEntry)[0].thread_core for path in paths]
    assert [(one.seccomp_mode, one.seccomp_filter) for one in threads] == [(2, 2), (0, 0), (2, 3)]


def test_under_a_filter_criu_cannot_restore_a_strict_thread(tmp_path: Path) -> None:
    strict = core([0])
    strict.thread_core.seccomp_mode = 1
    write(tmp_path, 5, strict)
    assert not limit_calls(tmp_path, [process(5)])
