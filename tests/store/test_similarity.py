"""What is like something before it is found at any offset of words; what is new is not taken for it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relive.store.pages.similarity import novel_pages


def noise(pages: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1 << 60, (pages, 512)).astype(np.uint64)


def test_pages_of_new_content_are_novel():
    assert novel_pages(noise(300)).all()


@given(offset=st.integers(0, 511))
def test_content_that_is_moved_by_words_is_known_again(offset):
    once = noise(6)
    again = np.roll(once.reshape(-1), offset).reshape(-1, 512)
    assert novel_pages(np.concatenate([once, again])).tolist() == [True] * 6 + [False] * 6


def test_a_page_of_which_much_is_new_is_novel():
    once = noise(1)
    half = once.copy()
    half[:, 256:] = noise(1, seed=1)[:, 256:]
    assert novel_pages(np.concatenate([once, half])).all()


def test_pages_without_a_feature_are_novel():
    assert novel_pages(np.zeros((3, 512), np.uint64)).all()


def test_nothing_of_nothing():
    assert len(novel_pages(np.empty((0, 512), np.uint64))) == 0
