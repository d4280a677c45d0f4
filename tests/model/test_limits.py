"""Limits as users write them."""

from __future__ import annotations

import resource

import pytest

from relive.errors import UsageError
from relive.model.limits import parse_limit


def test_a_limit_is_a_name_and_one_or_two_numbers():
    assert parse_limit("nofile=1024:4096") == ("nofile", 1024, 4096)
    assert parse_limit("core=0") == ("core", 0, 0)
    assert parse_limit("nproc=5:infinity") == ("nproc", 5, resource.RLIM_INFINITY)


@pytest.mark.parametrize(
    "text", ["", "nofile", "nofile=", "nofile=-1", "files=3", "nofile=5:4", "nofile=infinity:4", "core=1:2:3"]
)
def test_another_text_is_refused(text):
    with pytest.raises(UsageError):
        parse_limit(text)
