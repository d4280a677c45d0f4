"""Range and If-Range, by RFC 9110."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import RangeUnsatisfiable
from relive.server.ranges import ByteRange, wanted

TAG = '"abc"'
CONTENT = bytes(range(256)) * 4


def asked(header, size=1000, if_range=None):
    return wanted(header, if_range, size=size, etag=TAG)


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("bytes=0-499", (0, 500)),
        ("bytes=500-", (500, 1000)),
        ("bytes=-500", (500, 1000)),
        ("bytes=-5000", (0, 1000)),
        ("bytes=999-", (999, 1000)),
        ("bytes=0-0", (0, 1)),
        ("bytes=900-99999999999999999999", (900, 1000)),
        ("Bytes = 1-2 ", (1, 3)),
    ],
)
def test_one_range_is_given(header, span):
    assert asked(header) == ByteRange(*span)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=0-1,3-4",
        "bytes=+1-2",
        "bytes=1_0-20",
        "lines=0-1",
        "bytes=٣-٤",
        "bytes=0x1-2",
        "bytes=1 - 2",
        "bytes=0-1\n",
        "bytes=1.0-2",
        "bytes=" + "9" * 5000 + "-",
    ],
)
def test_what_may_be_ignored_is_the_whole_file(header):
    assert asked(header) is None


@pytest.mark.parametrize(
    "header", ["bytes=1000-", "bytes=1000-1001", "bytes=-0", "bytes=999999999999999999999-"]
)
def test_a_range_behind_the_end_cannot_be_given(header):
    with pytest.raises(RangeUnsatisfiable, match="1000 bytes long"):
        asked(header)


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=0-0", "bytes=-1"])
def test_an_empty_file_has_no_range(header):
    with pytest.raises(RangeUnsatisfiable):
        asked(header, size=0)


@pytest.mark.parametrize(
    "other", ['"abd"', 'W/"abc"', "abc", "Sun, 06 Nov 1994 08:49:37 GMT", "", '"abc", "x"']
)
def test_another_state_is_the_whole_file(other):
    assert asked("bytes=5-", if_range=other) is None
    assert asked("bytes=5000-", if_range=other) is None


def test_the_same_state_goes_on():
    assert asked("bytes=5-", if_range=TAG) == ByteRange(5, 1000)


@given(st.text(alphabet="bytes=-0123456789, \t\n;+٣", max_size=20), st.integers(0, 50))
def test_whatever_is_sent_gives_bytes_of_the_file_or_the_declared_error(header, size):
    try:
        span = asked(header, size)
    except RangeUnsatisfiable:
        return
    assert span is None or 0 <= span.begin < span.end <= size


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_it_gives_what_slices_give(first, last):
    size = len(CONTENT)
    if first < size and first <= last:
        span = asked(f"bytes={first}-{last}", size)
        assert CONTENT[span.begin : span.end] == CONTENT[first : last + 1]
    if last:
        span = asked(f"bytes=-{last}", size)
        assert CONTENT[span.begin : span.end] == CONTENT[-last:]
