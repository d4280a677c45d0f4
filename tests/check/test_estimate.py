"""Estimates grow with what they are made from; which numbers are right is no matter of a test."""

from __future__ import annotations

import os
from dataclasses import replace

from relive.check.estimate import Range, estimate
from relive.check.snapshot import Limits, Memory
from relive.model.commit import TargetKind

from .seen import SPACES, file, process, tree


def grows(less: Range, more: Range) -> bool:
    return less.least < more.least and less.most < more.most


def test_memory_threads_and_processes_are_summed() -> None:
    child = process(11, memory=Memory(private=5, shared=3, backed=70), threads=4)
    found = estimate(tree(root={"memory": Memory(private=10, shared=1, backed=50)}, children=(child,)))
    assert (found.memory, found.shared, found.backed) == (15, 4, 70)
    assert (found.processes, found.threads, found.descriptors) == (2, 5, 0)


def test_more_memory_takes_longer_and_more_room() -> None:
    small, large = (estimate(tree(root={"memory": Memory(private=size << 20)})) for size in (10, 500))
    assert grows(small.pause_us, large.pause_us) and grows(small.first, large.first)
    assert large.later.most < large.first.most


def test_memory_that_is_copied_ahead_hardly_lengthens_the_pause() -> None:
    ahead = Limits(spaces=SPACES, pre_copy_from=64 << 20)
    of = {"memory": Memory(private=500 << 20)}
    assert grows(estimate(tree(root=of, limits=ahead)).pause_us, estimate(tree(root=of)).pause_us)
    small = {"memory": Memory(private=10 << 20)}
    assert estimate(tree(root=small, limits=ahead)).pause_us == estimate(tree(root=small)).pause_us


def test_open_files_count_for_plain_processes_only() -> None:
    held = file("/srv/x", flags=os.O_RDWR, size=100 << 20)
    plain, capsule = estimate(tree(held)), estimate(tree(held, kind=TargetKind.CAPSULE))
    assert (plain.open_files, capsule.open_files) == (100 << 20, 0)
    assert grows(capsule.pause_us, plain.pause_us)


def test_files_that_share_blocks_take_no_time() -> None:
    seen = tree(file("/srv/x", flags=os.O_RDWR, size=100 << 20))
    shared = replace(seen, mounts={1: replace(seen.mounts[1], kind="btrfs")})
    assert grows(estimate(shared).pause_us, estimate(seen).pause_us)


def test_a_busy_host_takes_longer_at_most() -> None:
    busy = estimate(tree(limits=Limits(spaces=SPACES, load=4.0)))
    quiet = estimate(tree())
    assert (busy.pause_us.least, busy.pause_us.most) == (quiet.pause_us.least, 4 * quiet.pause_us.most)
