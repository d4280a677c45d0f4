import pytest

from relive.errors import UsageError
from relive.inspection.patterns import LONGEST_MATCH, parse_pattern


@pytest.mark.parametrize(
    ("text", "data", "spans"),
    [
        ("a.c", b"abc a.c", [(4, 7)]),
        ("hex:00ff", b"\0\xff..\0\xff", [(0, 2), (4, 6)]),
        ("re:u[0-9]+", b"u1 u22", [(0, 2), (3, 6)]),
        ("re:x*", b"axx", [(1, 3)]),  # empty matches are none
        ("ä\n", "ä\n".encode(), [(0, 3)]),
    ],
)
def test_each_kind_is_found(text, data, spans):
    assert list(parse_pattern(text).matches(data)) == spans


def test_parts_overlap_by_what_a_match_may_lack():
    assert parse_pattern("needle").overlap == 5
    assert parse_pattern("re:n.*e").overlap == LONGEST_MATCH


@pytest.mark.parametrize("text", ["", "hex:", "hex:0", "hex:zz", "re:", "re:(", "re:" + "(" * 200])
def test_what_cannot_be_meant_is_refused(text):
    with pytest.raises(UsageError, match="cannot be looked for"):
        parse_pattern(text)
