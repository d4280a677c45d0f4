"""Codings are taken off, within bounds, and what cannot be read is not guessed at."""

from __future__ import annotations

import gzip
import zlib

import pytest

from relive.incidents.report.content_coding import coding_of, decoded


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_what_was_packed_is_unpacked_also_when_its_end_is_missing(coding, pack):
    assert decoded(pack(b"body"), coding) == b"body"
    text = bytes(range(256)) * 64
    part = decoded(pack(text)[:-20], coding)
    assert part
    assert text.startswith(part)


def test_a_bomb_unpacks_to_a_mebibyte():
    assert len(decoded(gzip.compress(bytes(64 << 20)), "gzip") or b"") == 1 << 20


def test_what_has_no_coding_stays():
    assert decoded(b"x", "") == decoded(b"x", "identity") == b"x"


def test_what_cannot_be_read_is_none():
    assert decoded(b"x", "br") is None
    assert decoded(b"no gzip", "gzip") is None


def test_the_coding_stands_in_the_headers():
    assert coding_of([("a", "b"), ("Content-Encoding", " GZIP ")]) == "gzip"
    assert coding_of([]) == ""
