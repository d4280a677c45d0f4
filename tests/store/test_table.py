"""An index comes back as it was, and what is none is refused."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ObjectCorrupt
from relive.store.pages.table import (
    NOWHERE,
    Index,
    Table,
    decode_index,
    encode_index,
    pack_of,
    place,
    slot_of,
)

places = st.just(NOWHERE) | st.builds(
    lambda pack, slot: pack << 32 | slot, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(0, 6))
    columns = [draw(st.lists(places, min_size=count, max_size=count)) for _ in range(2)]
    return Table(*(np.array(column, np.int64) for column in columns))


@given(bundle=st.binary(max_size=20), found=st.dictionaries(st.text(max_size=5), tables(), max_size=3))
def test_an_index_comes_back_as_it_was(bundle, found):
    again = decode_index(encode_index(Index(bundle, found)))
    assert again.bundle == bundle
    assert again.tables.keys() == found.keys()
    for name, table in found.items():
        assert again.tables[name].full.tolist() == table.full.tolist()
        assert again.tables[name].xor.tolist() == table.xor.tolist()


def test_a_place_is_pack_and_slot():
    spots = place(3, np.array([0, 7, 2**32 - 1]))
    assert (pack_of(spots).tolist(), slot_of(spots).tolist()) == ([3, 3, 3], [0, 7, 2**32 - 1])
    assert pack_of(np.array([NOWHERE])).tolist() == [-1]


@pytest.mark.parametrize(
    "value",
    [
        *([], None, 7, {}, {"bundle": b""}, {"bundle": "text", "tables": {}}, {"bundle": b"", "tables": []}),
        *({"bundle": b"", "tables": {"p": columns}} for columns in ([], [b""] * 3, [b"abc"] * 4, [1] * 4)),
        {"bundle": b"", "tables": {"p": [b"", b"", b"", b"abcd"]}},
    ],
    ids=repr,
)
def test_what_is_no_index_is_refused(value):
    with pytest.raises(ObjectCorrupt):
        decode_index(msgpack.packb(value))


@given(data=st.binary(max_size=40))
def test_any_bytes_in_place_of_an_index_give_the_declared_error(data):
    with pytest.raises(ObjectCorrupt):
        decode_index(data)
