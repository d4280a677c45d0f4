"""Which packs a key commit keeps anew: those of which it uses little, and those that are mostly dead."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relive.store.pages.compaction import (
    dictionaries_in,
    dictionaries_used,
    numbered_anew,
    packs_in,
    packs_to_fold,
    packs_used,
)
from relive.store.pages.packfile import FrameKind
from relive.store.pages.table import NOWHERE, PageTable, pack_of, slot_of


def table(*packs: int, xor: int = NOWHERE) -> PageTable:
    """A page in each of these packs, at slot 5."""
    full = np.array([NOWHERE if pack < 0 else pack << 32 | 5 for pack in packs], np.int64)
    return PageTable(full, np.full(len(full), NOWHERE if xor < 0 else xor << 32 | 6, np.int64))


def folded(*packs: int, **sizes: int) -> list[int]:
    return packs_to_fold([table(*packs)], [], lambda pack: sizes[f"p{pack}"]).tolist()


def test_a_pack_that_holds_much_of_the_commit_and_little_else_is_kept():
    assert folded(*[0] * 90, p0=128) == []


def test_a_pack_that_is_mostly_dead_is_folded():
    assert folded(*[0] * 90, p0=181) == [0]


def test_a_pack_that_serves_others_as_well_is_not_called_dead():
    others = [table(*[0] * 90)]
    assert packs_to_fold([table(*[0] * 10)], others, lambda _: 128).tolist() == []
    assert packs_to_fold([table(*[0] * 10)], [], lambda _: 128).tolist() == [0]


def test_a_large_file_does_not_make_little_of_what_memory_has_in_a_pack():
    """Each counts for itself: else all memory would be kept anew by every key commit."""
    assert packs_to_fold([table(*[1] * 90)], [table(*[0] * 9000)], lambda _: 90).tolist() == []


def test_packs_that_hold_little_of_the_commit_are_folded():
    assert folded(*[0] * 90, 1, 2, 2, p0=90, p1=1, p2=2) == [1, 2]


def test_a_pack_that_cannot_be_read_is_folded():
    assert folded(0, 0, 1, p0=2, p1=0) == [1]


def test_pages_that_are_zero_count_for_nothing():
    assert folded(*[-1] * 100, p0=1) == []


@given(packs=st.lists(st.integers(0, 40), max_size=200))
def test_few_packs_are_kept_whatever_the_commit_looks_like(packs):
    kept = set(packs) - set(packs_to_fold([table(*packs)], [], packs.count).tolist())
    assert len(kept) <= 8


def test_both_versions_of_a_page_count_as_use():
    assert packs_used([packs_in(table(0, -1, 2)), packs_in(table(5, xor=7))]) == {0, 2, 5, 7}


def test_numbering_anew_moves_the_packs_up_and_leaves_slots_and_zeros():
    moved = numbered_anew({"p": table(4, -1, 2, xor=9)}, [2, 4, 9])["p"]
    assert pack_of(moved.full).tolist() == [1, NOWHERE, 0]
    assert slot_of(moved.full[[0, 2]]).tolist() == [5, 5]
    assert pack_of(moved.xor).tolist() == [2, 2, 2]


def test_a_pack_whose_full_pages_need_the_dictionary_of_another_is_folded_however_much_it_holds():
    large = [table(*[0] * 90, *[1] * 90)]
    own, others = {(0, FrameKind.PAGES): 0}, {(1, FrameKind.PAGES): 0, (0, FrameKind.WORDS): 1}
    assert packs_to_fold(large, [], lambda _: 90, own).tolist() == []
    assert packs_to_fold(large, [], lambda _: 90, own | others).tolist() == [1]


def test_a_dictionary_is_needed_by_who_has_pages_of_that_sort():
    found = {
        (0, FrameKind.PAGES): 3,
        (0, FrameKind.WORDS): 4,
        (5, FrameKind.WORDS): 4,
        (6, FrameKind.PAGES): 3,
    }
    used = dictionaries_used([packs_in(table(0, -1, 2)), packs_in(table(6, xor=5))], found)
    assert used == {(0, FrameKind.PAGES): 3, (6, FrameKind.PAGES): 3, (5, FrameKind.WORDS): 4}
    assert dictionaries_in(used, 3) == [FrameKind.PAGES]
    assert dictionaries_in(used, 4) == [FrameKind.WORDS]
    assert dictionaries_in(used, 5) == []
