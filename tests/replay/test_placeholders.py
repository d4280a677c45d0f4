"""A text with placeholders is the text with secrets, and the beginning of one its beginning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.replay.placeholders import begins_same_text, is_same_text

SECRET, PLACEHOLDER = "s3cret-token", "<secret:0123abcd>"
WORDS = st.lists(st.sampled_from(["a", "bc", "d e", SECRET]), max_size=8).map("|".join)


@given(recorded=WORDS)
def test_each_beginning_of_a_text_is_one(recorded: str) -> None:
    came = recorded.replace(SECRET, PLACEHOLDER)
    assert is_same_text(recorded, came)
    for kept in range(len(recorded) + 1):
        assert begins_same_text(recorded[:kept], came), kept


def test_what_follows_a_secret_is_compared_however_long_it_is() -> None:
    rest = "".join(map(str, range(9000)))
    assert begins_same_text(f"a{SECRET}|{rest}"[:20000], f"a{PLACEHOLDER}|{rest}")
    assert not begins_same_text(f"a{SECRET}|{rest}"[:20000] + "?", f"a{PLACEHOLDER}|{rest}")


@pytest.mark.parametrize(
    ("recorded", "came"),
    [
        ("ab", "a"),
        ("ab", "xb"),
        (f"{SECRET}|ab", f"{PLACEHOLDER}|a"),
        (f"{SECRET}|100{'y' * 9000}", f"{PLACEHOLDER}|999{'z' * 20000}"),
        (f"a{SECRET}|1{'y' * 9000}", f"a{PLACEHOLDER}|2{PLACEHOLDER}{'y' * 20000}"),
    ],
)
def test_what_is_none_is_told(recorded: str, came: str) -> None:
    assert not begins_same_text(recorded, came)
