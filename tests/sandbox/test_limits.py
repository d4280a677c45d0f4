"""What a branch may take of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from relive.sandbox.limits import Room, limits_for, room_on

_MIB = 1 << 20


def memory(given: int | None, held: int) -> int:
    found = limits_for(given=given, held=held, machine=1000 * _MIB, share=0.5, threads=3, processes=100)
    return found.memory // _MIB - 32


def test_it_has_the_memory_of_its_capsule_and_what_restores_it_has_some_beside() -> None:
    assert memory(64 * _MIB, 50 * _MIB) == 64


def test_without_a_limit_it_has_a_share_of_the_machine_or_what_it_held_and_some() -> None:
    assert memory(None, 50 * _MIB) == 500
    assert memory(None, 600 * _MIB) == 900


def test_the_processes_that_it_held_fit() -> None:
    few = limits_for(given=None, held=0, machine=1, share=1, threads=3, processes=10_000)
    many = limits_for(given=None, held=0, machine=1, share=1, threads=9000, processes=10_000)
    assert (few.processes, many.processes) == (10_000, 18_256)


def test_of_what_is_free_a_share_may_go(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert room_on(tmp_path, 1.0) == Room(0, 0), "then nobody looks"
    half = room_on(tmp_path, 0.5)
    assert 0.4 * disk.f_bavail < half.bytes / disk.f_frsize < 0.6 * disk.f_bavail
    assert 0.4 * disk.f_favail <= half.files <= 0.6 * disk.f_favail
