"""Addresses of a recorded signal in a process that has the same files elsewhere."""

from __future__ import annotations

from relive.kernel.procfs import Mapping
from relive.model.outcome import Fault, ThreadPlace
from relive.replay.fresh.relocating import relocated

PROGRAM, LIBRARY = "/srv/shop", "/lib/libc.so.6"
RECORDED = [
    Mapping(0x1000, 0x3000, "r-xp", 0x1000, PROGRAM),
    Mapping(0x9000, 0xA000, "r-xp", 0, LIBRARY),
    Mapping(0x20000, 0x21000, "rwxp", 0, ""),
]
HERE = [
    Mapping(0x50000, 0x51000, "r-xp", 0x1000, PROGRAM),  # the same code in two mappings
    Mapping(0x60000, 0x61000, "r-xp", 0x2000, PROGRAM),
    Mapping(0x70000, 0x71000, "r-xp", 0, LIBRARY),
]


def fault(instruction: int, *callers: int) -> Fault:
    place = ThreadPlace(thread=4, instruction=instruction, stack=0x7F00)
    return Fault(process=4, is_root=True, signal=11, address=0x5000, place=place, callers=list(callers))


def test_an_instruction_and_its_callers_are_where_the_same_bytes_of_the_file_are():
    moved = relocated(fault(0x1010, 0x2020, 0x9030), RECORDED, HERE)
    assert moved.place is not None
    assert (moved.place.instruction, moved.callers) == (0x50010, [0x60020, 0x70030])
    assert moved.address == 0x5000


def test_what_lies_in_no_file_cannot_be_compared():
    made_at_run_time = relocated(fault(0x20010, 0x1010), RECORDED, HERE)
    assert (made_at_run_time.place, made_at_run_time.callers) == (None, None)
    called_by_it = relocated(fault(0x1010, 0x20010), RECORDED, HERE)
    assert called_by_it.place is not None and called_by_it.callers is None


def test_of_a_file_that_is_not_mapped_here_nothing_is_known():
    assert relocated(fault(0x9010), RECORDED, HERE[:2]).place is None


def test_callers_that_nobody_kept_stay_unknown():
    unknown = fault(0x1010).model_copy(update={"callers": None})
    moved = relocated(unknown, RECORDED, HERE)
    assert moved.place is not None and moved.callers is None
