"""A direction of a connection comes out as it was sent, in whatever order, cut and number of copies its segments come."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from relive.proxies.ingress._reassembly import ByteStream

ROUND = 1 << 32
bases = st.one_of(st.integers(0, ROUND - 1), st.integers(ROUND - 40, ROUND - 1))


@st.composite
def cuttings(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """A text, and (begin, end) of pieces that cover it, with copies and overlaps, in any order."""
    text = bytes(draw(st.lists(st.integers(0, 255), min_size=1, max_size=60)))
    places = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=8))})
    pieces = list(itertools.pairwise(places))
    more = draw(st.lists(st.tuples(st.integers(0, len(text)), st.integers(0, len(text))), max_size=8))
    pieces += [(min(pair), max(pair)) for pair in more if pair[0] != pair[1]]
    draw(st.randoms(use_true_random=False)).shuffle(pieces)
    return text, pieces


@given(bases, cuttings())
def test_all_of_it_comes_out_once_and_in_order(
    base: int, cutting: tuple[bytes, list[tuple[int, int]]]
) -> None:
    text, pieces = cutting
    stream = ByteStream(base)
    out = b"".join(
        part for begin, end in pieces for part in stream.add((base + begin) % ROUND, text[begin:end])
    )
    assert out == text
    assert (stream.place, stream.ahead) == (len(text), 0)


@given(bases, cuttings(), st.data())
def test_without_a_piece_nothing_behind_it_comes_out(
    base: int, cutting: tuple[bytes, list[tuple[int, int]]], data: st.DataObject
) -> None:
    text, pieces = cutting
    gone = data.draw(st.integers(0, len(text) - 1))
    stream = ByteStream(base)
    out = b"".join(
        part
        for begin, end in pieces
        if not begin <= gone < end
        for part in stream.add((base + begin) % ROUND, text[begin:end])
    )
    assert text.startswith(out)
    assert len(out) <= gone
    assert stream.lacks_before((base + gone + 1) % ROUND)
    assert not stream.lacks_before((base + len(out)) % ROUND)


def test_places_go_on_where_sequence_numbers_come_round() -> None:
    stream, piece = ByteStream(ROUND - 5), bytes(1 << 20)
    for number in range(5000):  # 5 GiB
        assert stream.add((ROUND - 5 + number * len(piece)) % ROUND, piece) == [piece]
    assert stream.place == 5000 * len(piece) == stream.place_of((ROUND - 5 + stream.place) % ROUND)


def test_what_lies_before_its_beginning_is_left_out() -> None:
    stream = ByteStream(100)
    assert stream.add(90, b"0123456789") == []
    assert stream.add(95, b"0123456789") == [b"56789"]


def test_its_end_is_where_fin_says_and_reached_when_all_before_it_has_come() -> None:
    stream = ByteStream(7)
    stream.add(9, b"cd")
    stream.end_at(11)
    assert not stream.has_ended
    assert stream.add(7, b"ab") == [b"ab", b"cd"]
    assert stream.has_ended
    assert not stream.lacks_before(12)  # FIN takes a number


def test_the_first_copy_counts() -> None:
    stream = ByteStream(0)
    stream.add(2, b"CD")
    assert stream.add(0, b"abxx") == [b"abxx"]
    assert stream.add(2, b"yyyy") == [b"yy"]
