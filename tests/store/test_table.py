"""An index comes back as it was, and what is none is refused."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ObjectCorrupt
from relive.store.pages.packfile import FrameKind
from relive.store.pages.table import (
    NOWHERE,
    ContentTable,
    PackIndex,
    PageTable,
    decode_index,
    encode_index,
    pack_of,
    slot_of,
    slot_places,
)

places = st.just(NOWHERE) | st.builds(
    lambda pack, slot: pack << 32 | slot, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1)
)


@st.composite
def tables(draw: st.DrawFn) -> PageTable:
    count = draw(st.integers(0, 6))
    columns = [draw(st.lists(places, min_size=count, max_size=count)) for _ in range(2)]
    return PageTable(*(np.array(column, np.int64) for column in columns))


@st.composite
def all_contents(draw: st.DrawFn) -> ContentTable:
    sizes = draw(st.dictionaries(st.binary(min_size=32, max_size=32), st.integers(0, 3 * 4096), max_size=4))
    count = sum(-(-size // 4096) for size in sizes.values())
    columns = [draw(st.lists(places, min_size=count, max_size=count)) for _ in range(2)]
    table = PageTable(*(np.array(column, np.int64) for column in columns))
    return ContentTable([name.hex() for name in sizes], np.array(list(sizes.values()), np.int64), table)


@given(
    bundle=st.binary(max_size=20),
    found=st.dictionaries(st.text(max_size=5), tables(), max_size=3),
    contents=all_contents(),
    listing=st.binary(min_size=1, max_size=20),
    dictionaries=st.dictionaries(
        st.tuples(st.integers(0, 99), st.sampled_from([FrameKind.PAGES, FrameKind.WORDS])), st.integers(0, 99)
    ),
)
def test_an_index_comes_back_as_it_was(bundle, found, contents, listing, dictionaries):
    again = decode_index(encode_index(PackIndex(bundle, found, contents, listing, dictionaries)))
    assert (again.bundle, again.listing, again.dictionaries) == (bundle, listing, dictionaries)
    assert list(again.contents.names) == list(contents.names)
    assert again.contents.sizes.tolist() == contents.sizes.tolist()
    assert again.contents.table.full.tolist() == contents.table.full.tolist()
    assert again.contents.table.xor.tolist() == contents.table.xor.tolist()
    assert again.tables.keys() == found.keys()
    for name, table in found.items():
        assert again.tables[name].full.tolist() == table.full.tolist()
        assert again.tables[name].xor.tolist() == table.xor.tolist()


def test_a_place_is_pack_and_slot():
    spots = slot_places(3, np.array([0, 7, 2**32 - 1]))
    assert (pack_of(spots).tolist(), slot_of(spots).tolist()) == ([3, 3, 3], [0, 7, 2**32 - 1])
    assert pack_of(np.array([NOWHERE])).tolist() == [-1]


@pytest.mark.parametrize(
    "value",
    [
        *([], None, 7, {}, {"bundle": b""}, {"bundle": "text", "tables": {}}, {"bundle": b"", "tables": []}),
        *({"bundle": b"", "tables": {"p": columns}} for columns in ([], [b""] * 3, [b"abc"] * 4, [1] * 4)),
        {"bundle": b"", "tables": {"p": [b"", b"", b"", b"abcd"]}},
        *({"bundle": b"", "tables": {}, "dictionaries": found} for found in (7, [1], [[1, 0]], [[1, 0, -1]])),
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
