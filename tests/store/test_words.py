"""Changed words come back in their places, and bytes that are none are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as made

from relive.store.pages.packreader import HeldWords
from relive.store.pages.words import ChangedWords, decode_words


def encoded(pages, mask):
    return b"".join(ChangedWords.of(pages, mask).encoded(len(pages) or 1))


MASKS = st.integers(0, 5).flatmap(lambda count: made.arrays(np.bool_, (count, 512)))


@given(mask=MASKS, seed=st.integers(0, 9))
def test_the_words_that_a_mask_says_come_back_and_the_others_are_not_kept(mask, seed):
    pages = np.random.default_rng(seed).integers(0, 3, mask.shape).astype(np.uint64)
    data = encoded(pages, mask)
    assert len(data) == 64 * len(pages) + 8 * mask.sum()
    where, found = decode_words(data, len(pages))
    assert (where == np.flatnonzero(mask)).all()
    assert (found == pages[mask]).all()


@given(data=st.binary(max_size=300), count=st.integers(1, 128))
def test_bytes_that_are_none_are_refused(data, count):
    try:
        at, words = decode_words(data, count)
    except ValueError:
        return
    pages, mask = HeldWords(count, at, words).expanded()
    assert encoded(pages, mask) == data


@given(mask=MASKS.filter(len), frame=st.integers(1, 3), cut=st.integers(0, 5))
def test_parts_are_written_as_the_whole_is(mask, frame, cut):
    pages = np.arange(mask.size, dtype=np.uint64).reshape(mask.shape)
    parts = [ChangedWords.of(pages[some], mask[some]) for some in (slice(cut), slice(cut, None))]
    begins = range(0, len(pages), frame)
    expected = [encoded(pages[begin : begin + frame], mask[begin : begin + frame]) for begin in begins]
    assert list(ChangedWords.joined(parts).encoded(frame)) == expected


@pytest.mark.parametrize("cut", [1, 8, 65])
def test_cut_ones_are_refused(cut):
    mask = np.zeros((2, 512), np.bool_)
    mask[1, :3] = True
    with pytest.raises(ValueError, match="changed words"):
        decode_words(encoded(np.ones((2, 512), np.uint64), mask)[:-cut], 2)


@given(mask=made.arrays(np.bool_, (6, 512)), rows=st.permutations(range(6)), count=st.integers(1, 6))
def test_the_words_of_some_pages_go_to_theirs_and_nowhere_else(mask, rows, count):
    at = np.flatnonzero(mask)
    held = HeldWords(6, at, np.arange(1, len(at) + 1, dtype=np.uint64))
    pages, target = np.zeros((9, 512), np.uint64), np.arange(9)[::-1][:count]
    held.apply(np.array(rows[:count]), pages, target)
    whole, _ = held.expanded()
    expected = np.zeros((9, 512), np.uint64)
    expected[target] = whole[rows[:count]]
    assert (pages == expected).all()
