"""What is searched for is found as it is written, in small letters and large."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.store.searching import searchable, wanted_words


@pytest.mark.parametrize("asked", ["pay", "PAY", "uvicorn app", "app pay", "STRASSE", "100%", "a_b", ""])
def test_each_word_stands_somewhere_in_the_text(asked):
    text = searchable("Pay", "uvicorn app:app --straße 100% a_b")
    assert all(word in text for word in wanted_words(asked))


@pytest.mark.parametrize("asked", ["paid", "pay mail", "a%b", "u_icorn"])
def test_a_word_that_is_not_there_is_not_found(asked):
    text = searchable("Pay", "uvicorn app:app 100% a_b")
    assert not all(word in text for word in wanted_words(asked))


def test_bytes_that_are_no_text_do_no_harm():
    assert searchable("caf\udce9\0") == "caf? "
    assert wanted_words("caf\udce9") == ["caf?"]


@pytest.mark.parametrize("asked", ["x" * 1001, "x " * 21])
def test_too_much_is_refused(asked):
    with pytest.raises(UsageError):
        wanted_words(asked)
