"""RESP out of bytes as they come, and into bytes again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.protocols.redis.resp import Commands, Said, Values, encode

texts = st.binary(max_size=12)
lines = st.binary(max_size=12).map(lambda line: line.translate(None, b"\r\n"))
scalars: st.SearchStrategy[Said] = st.one_of(
    st.tuples(st.sampled_from([b"+", b"-", b","]), lines),
    st.tuples(st.just(b"$"), texts),
    st.tuples(st.just(b":"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just(b"#"), st.booleans()),
    st.just((b"_", None)),
    st.tuples(st.just(b"("), st.integers().map(lambda number: b"%d" % number)),
)
values: st.SearchStrategy[Said] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([b"*", b"~", b">"]), st.lists(inner, max_size=4)),
        st.tuples(st.just(b"%"), st.lists(inner, max_size=4).map(lambda items: items + items)),
    ),
    max_leaves=12,
)


def in_parts(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted(min(cut, len(data)) for cut in cuts)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(values, max_size=4), st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=50, deadline=None)
def test_what_was_said_is_read_however_it_is_cut(said, cuts):
    data = b"".join(encode(one, 3) for one in said)
    reader = Values()
    found = [whole for part in in_parts(data, cuts) for whole in reader.feed(part)]
    assert [whole.said for whole in found] == said
    assert sum(whole.size for whole in found) == len(data)
    assert (reader.held, reader.is_broken) == (0, False)


@given(
    st.lists(st.lists(texts, min_size=1, max_size=4), max_size=4), st.lists(st.integers(0, 200), max_size=6)
)
@settings(max_examples=50, deadline=None)
def test_commands_are_read_however_they_are_cut(commands, cuts):
    data = b"".join(encode((b"*", [(b"$", word) for word in words]), 2) for words in commands)
    reader = Commands()
    found = [asked for part in in_parts(data, cuts) for asked in reader.feed(part)]
    assert [asked.words for asked in found] == commands
    assert sum(asked.size for asked in found) == len(data)


@given(st.lists(st.binary(max_size=40), max_size=6))
@settings(max_examples=100, deadline=None)
def test_whatever_comes_is_read_or_refused(parts):
    for reader in (Values(), Commands()):
        for part in parts:
            reader.feed(part)
        assert reader.held <= sum(map(len, parts))


@pytest.mark.parametrize(
    ("said", "two"),
    [
        ((b"%", [(b"+", b"a"), (b":", 1)]), b"*2\r\n+a\r\n:1\r\n"),
        ((b"_", None), b"$-1\r\n"),
        ((b"*", None), b"*-1\r\n"),
        ((b"#", True), b":1\r\n"),
        ((b",", b"1.5"), b"$3\r\n1.5\r\n"),
        ((b"=", b"txt:hi"), b"$2\r\nhi\r\n"),
        ((b"!", b"ERR x"), b"-ERR x\r\n"),
        ((b">", [(b"+", b"message")]), b"*1\r\n+message\r\n"),
    ],
)
def test_resp3_is_said_in_resp2(said, two):
    assert encode(said, 2) == two


def test_attributes_are_no_values_but_belong_to_their_bytes():
    data = b"|1\r\n+ttl\r\n:3\r\n*2\r\n|0\r\n:1\r\n|1\r\n+a\r\n+b\r\n:2\r\n"
    (whole,) = Values().feed(data)
    assert whole.said == (b"*", [(b":", 1), (b":", 2)])
    assert whole.size == len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b"$?\r\n",
        b"$9999999999\r\n",
        b"*99999999999\r\n",
        b"$1\r\nabc",
        b":1.5\r\n",
        b"#x\r\n",
        b"*1\r\n" * 200,
        b"+" + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(data):
    reader = Values()
    reader.feed(data)
    assert reader.is_broken
    assert reader.feed(b"+OK\r\n") == []


@pytest.mark.parametrize(
    "data", [b"*1\r\n:1\r\n", b"*x\r\n", b"*1\r\n$-2\r\n", b"GET 'a\r\n", b"\x16\x03\x01\n", b"x" * 70_000]
)
def test_what_is_no_command_is_refused(data):
    reader = Commands()
    reader.feed(data)
    assert reader.is_broken


def test_nothing_is_reserved_for_what_is_only_announced():
    values = Values()
    assert values.feed(b"*2000000000\r\n$500000000\r\nx") == []
    assert values.held == 26
    assert not values.is_broken


def test_a_large_answer_in_many_parts_is_read_in_time_that_grows_with_its_size():
    """Each part is looked at once: a hundred thousand items byte by byte would not end otherwise."""
    data: Any = b"*100000\r\n" + b":1\r\n" * 100_000
    reader = Values()
    found = [whole for at in range(0, len(data), 7) for whole in reader.feed(data[at : at + 7])]
    assert len(found[0].said[1]) == 100_000
