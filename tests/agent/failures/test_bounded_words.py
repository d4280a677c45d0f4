"""Words that are told apart, up to a number."""

from __future__ import annotations

from relive.agent.failures.bounded_words import BoundedWords


def test_the_first_words_are_kept_and_stay_so():
    words = BoundedWords(2)
    assert [words.keeps(one) for one in ("a", "b", "c", "a", "c", "b")] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]
