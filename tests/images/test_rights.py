"""A branch's processes lose exactly the capabilities that are withheld."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.rights import limit_rights
from relive.kernel.capabilities import WITHHELD

MAGIC = struct.pack("<II", 0x54564319, 0x55053847)
SETS = ("cap_inh", "cap_prm", "cap_eff", "cap_bnd", "cap_amb")
ALL = [0xFFFFFFFF, 0x1FF]  # capabilities 0 to 40


def core(words: list[int]) -> pb.CoreEntry:
    entry = pb.CoreEntry(mtype=1)
    entry.thread_core.creds.uid, entry.thread_core.creds.gid = 1000, 1001
    for name in SETS:
        getattr(entry.thread_core.creds, name).extend(words)
    return entry


def write(images: Path, thread: int, entry: pb.CoreEntry) -> Path:
    body = entry.SerializeToString()
    path = images / f"core-{thread}.img"
    path.write_bytes(MAGIC + struct.pack("<I", len(body)) + body)
    return path


def process(pid: int, *threads: int) -> pb.PstreeEntry:
    return pb.PstreeEntry(pid=pid, ppid=0, pgid=pid, sid=pid, threads=threads)


def held(path: Path, name: str) -> set[int]:
    words = getattr(read_entries(path, pb.CoreEntry)[0].thread_core.creds, name)
    return {bit for bit in range(64) if bit // 32 < len(words) and words[bit // 32] >> bit % 32 & 1}


@pytest.mark.parametrize("name", SETS)
def test_exactly_the_withheld_ones_are_taken_from_every_set(tmp_path, name):
    path = write(tmp_path, 5, core(ALL))
    limit_rights(tmp_path, [process(5, 5)])
    assert held(path, name) == set(range(41)) - set(WITHHELD.values())


def test_every_thread_of_every_process_is_limited(tmp_path):
    paths = [write(tmp_path, thread, core(ALL)) for thread in (5, 6, 9)]
    limit_rights(tmp_path, [process(5, 5, 6), process(9)])
    assert all(WITHHELD["CAP_SYS_ADMIN"] not in held(path, "cap_eff") for path in paths)


def test_every_message_of_an_image_is_limited(tmp_path):
    body = core(ALL).SerializeToString()
    path = tmp_path / "core-5.img"
    path.write_bytes(MAGIC + (struct.pack("<I", len(body)) + body) * 2)
    limit_rights(tmp_path, [process(5, 5)])
    assert all(not one.thread_core.creds.cap_eff[0] >> 21 & 1 for one in read_entries(path, pb.CoreEntry))


def test_who_had_none_of_them_is_not_written_anew(tmp_path):
    path = write(tmp_path, 5, core([1, 0]))
    inode = path.stat().st_ino
    limit_rights(tmp_path, [process(5, 5)])
    assert path.stat().st_ino == inode
    assert held(path, "cap_eff") == {0}


def test_identity_is_left_as_it_was(tmp_path):
    path = write(tmp_path, 5, core(ALL))
    limit_rights(tmp_path, [process(5, 5)])
    creds = read_entries(path, pb.CoreEntry)[0].thread_core.creds
    assert (creds.uid, creds.gid) == (1000, 1001)


def test_an_image_of_an_old_kernel_with_one_word_is_limited_too(tmp_path):
    path = write(tmp_path, 5, core([0xFFFFFFFF]))
    limit_rights(tmp_path, [process(5, 5)])
    assert held(path, "cap_eff") == {bit for bit in range(32) if bit not in WITHHELD.values()}


def test_a_dead_process_and_a_thread_without_an_image_are_passed_over(tmp_path):
    dead = pb.CoreEntry(mtype=1)
    dead.tc.task_state, dead.tc.exit_code, dead.tc.comm = 2, 0, "gone"
    write(tmp_path, 6, dead)
    limit_rights(tmp_path, [process(5, 5), process(6, 6)])


def test_a_thread_that_does_not_say_which_rights_it_has_is_refused(tmp_path):
    """CRIU would leave it its own, which are root's."""
    write(tmp_path, 5, pb.CoreEntry(mtype=1))
    with pytest.raises(ObjectCorrupt, match="which rights"):
        limit_rights(tmp_path, [process(5, 5)])


def test_nobody_comes_before_the_processes_of_the_host(tmp_path):
    entry = core([0])
    entry.tc.task_state, entry.tc.exit_code, entry.tc.comm = 1, 0, "eager"
    entry.tc.oom_score_adj, entry.tc.cg_set = -1000, 7
    entry.thread_core.sched_policy, entry.thread_core.sched_prio = 1, 99
    entry.thread_core.sched_nice, entry.thread_core.cg_set = -20, 7
    path = write(tmp_path, 5, entry)
    limit_rights(tmp_path, [process(5, 5)])
    (left,) = read_entries(path, pb.CoreEntry)
    assert left.tc.oom_score_adj == 0 and not left.tc.HasField("cg_set")
    thread = left.thread_core
    assert (thread.sched_policy, thread.sched_prio, thread.sched_nice, thread.HasField("cg_set")) == (
        0,
        0,
        0,
        False,
    )


def test_those_who_come_later_still_do(tmp_path):
    entry = core([0])
    entry.thread_core.sched_policy, entry.thread_core.sched_nice = 3, 19
    path = write(tmp_path, 5, entry)
    limit_rights(tmp_path, [process(5, 5)])
    thread = read_entries(path, pb.CoreEntry)[0].thread_core
    assert (thread.sched_policy, thread.sched_nice) == (3, 19)


def test_the_numbers_are_those_of_the_kernel():
    """The ones with which root leaves a sandbox, by linux/capability.h."""
    assert WITHHELD["CAP_SYS_MODULE"] == 16
    assert WITHHELD["CAP_SYS_ADMIN"] == 21
    assert WITHHELD["CAP_MKNOD"] == 27
    assert WITHHELD["CAP_BPF"] == 39
    assert {"CAP_SYS_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_MKNOD", "CAP_DAC_READ_SEARCH"} <= set(
        WITHHELD
    )


def test_the_first_thread_is_limited_though_only_others_are_named(tmp_path):
    path = write(tmp_path, 5, core(ALL))
    limit_rights(tmp_path, [process(5, 6)])
    assert WITHHELD["CAP_SYS_ADMIN"] not in held(path, "cap_eff")
