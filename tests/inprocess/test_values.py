"""Values come back as they were; foreign code is never run."""

from __future__ import annotations

import datetime
import decimal
import fractions
import ipaddress
import json
import pathlib
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
import contextlib

from relive_recorder import values

sys.path.remove(str(INPROCESS))

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.fractions()
    | st.ip_addresses()
    | st.complex_numbers(allow_nan=False)
)
trees = st.recursive(
    plain,
    lambda below: (
        st.lists(below, max_size=4)
        | st.tuples(below, below)
        | st.dictionaries(st.text() | st.integers(), below, max_size=4)
        | st.frozensets(st.integers(), max_size=4)
    ),
    max_leaves=12,
)


@given(trees)
def test_a_value_comes_back(value):
    packed = json.loads(values.to_json(values.pack(value)))
    again = values.unpack(packed)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        decimal.Decimal("1.50"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=7),
        ipaddress.ip_address("::1"),
        pathlib.PosixPath("/a"),
        float("inf"),
    ],
)
def test_types_with_a_text_of_their_own(value):
    assert values.unpack(values.pack(value)) == value


class Trap:  # each of its methods would tell
    def __repr__(self) -> str:
        raise AssertionError("user code ran")

    __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __getattr__ = __repr__  # type: ignore[assignment]


def test_foreign_code_is_not_run():
    packed = values.pack([Trap(), {"a": Trap()}])
    assert packed[0] == {"$": ["opaque", f"{__name__}.Trap"]}
    with pytest.raises(values.NotKept):
        values.unpack(packed)


def test_what_contains_itself_ends():
    loop: list[object] = []
    loop.append(loop)
    assert "opaque" in values.to_json(values.pack(loop))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda below: st.lists(below) | st.dictionaries(st.just("$") | st.text(), below),
    )
)
def test_hostile_json_is_refused_or_read(packed):
    with contextlib.suppress(values.NotKept):
        values.unpack(packed)
