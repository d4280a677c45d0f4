"""Text of the operating system survives JSON, whatever bytes it is made of."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from relive.model.text import NativeText, escape, unescape


class Holder(BaseModel):
    value: NativeText


@given(st.binary())
def test_any_bytes_come_back(data):
    text = os.fsdecode(data)
    assert os.fsencode(unescape(escape(text))) == data


@given(st.binary())
def test_any_bytes_come_back_through_a_field(data):
    holder = Holder(value=os.fsdecode(data))
    assert Holder.model_validate_json(holder.model_dump_json()) == holder


@given(st.binary())
def test_what_is_written_is_unicode(data):
    escape(os.fsdecode(data)).encode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\\")))
def test_ordinary_text_is_written_as_it_is(text):
    assert escape(text) == text


def test_a_byte_and_a_backslash_are_told_apart():
    assert escape("\udcff") == r"\xff"
    assert escape(r"\xff") == r"\\xff"


@pytest.mark.parametrize("text", ["\\", r"a\b", r"\x7f", r"\xFF", r"\xf", r"\\\x"])
def test_what_is_never_written_is_refused(text):
    with pytest.raises(ValueError, match="backslash"):
        unescape(text)


@pytest.mark.parametrize("value", ["3", "null", '"\\\\q"', "[]"])
def test_a_field_refuses_what_is_no_such_text(value):
    with pytest.raises(ValidationError):
        Holder.model_validate_json(f'{{"value": {value}}}')


def test_bytes_are_taken_as_the_text_they_are():
    """Protobuf gives bytes for a string field whose bytes are no UTF-8, such as a process's name."""
    assert Holder(value=b"\xffpay").value == "\udcffpay"  # type: ignore[arg-type]
