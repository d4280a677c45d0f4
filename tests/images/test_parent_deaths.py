"""Whose parent CRIU is in a branch does not die with it."""

from __future__ import annotations

import signal
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import image_like, read_entries
from relive.images.parent_deaths import survive_criu

HEADER = bytes.fromhex("1943565447380555")  # the second number is not looked at


def test_the_root_does_not_get_the_signal_and_its_children_do(tmp_path: Path) -> None:
    processes = [
        pb.PstreeEntry(pid=2, ppid=0, pgid=2, sid=2, threads=[2, 3]),
        pb.PstreeEntry(pid=5, ppid=2, pgid=2, sid=2, threads=[5]),
    ]
    core = pb.CoreEntry(mtype=1)
    core.thread_core.pdeath_sig = signal.SIGKILL
    core.thread_core.sched_nice = 7
    paths = {thread: tmp_path / f"core-{thread}.img" for thread in (2, 3, 5)}
    for path in paths.values():
        path.write_bytes(image_like(HEADER, [core]))
    survive_criu(tmp_path, processes)
    found = {thread: read_entries(path, pb.CoreEntry)[0].thread_core for thread, path in paths.items()}
    assert {thread: one.pdeath_sig for thread, one in found.items()} == {2: 0, 3: 0, 5: signal.SIGKILL}
    assert {one.sched_nice for one in found.values()} == {7}
