"""Blobs against an earlier one: what comes out does not depend on whether that was ready."""

from __future__ import annotations

import random

import pytest
import zstandard

from relive.store.pages import blob_dictionary
from relive.store.pages.blob_dictionary import BlobDictionary, as_dictionary, compress_blob


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def opened(frame: bytes, dictionary: bytes) -> bytes:
    return zstandard.ZstdDecompressor(dict_data=as_dictionary(dictionary)).decompress(frame)


@pytest.mark.parametrize(
    "ready_most", [blob_dictionary._READY_MOST, 0], ids=["kept ready", "too large for it"]
)
def test_blobs_of_any_size_come_back_and_are_small_where_they_are_like_it(monkeypatch, ready_most):
    monkeypatch.setattr(blob_dictionary, "_READY_MOST", ready_most)
    before = noise(200_000, 1)
    dictionary = BlobDictionary(before)
    for size in (0, 1, 1000, 199_000, 200_000, 200_000, 900_000, 200_000):
        data = before[: size // 2] + b"changed" + before[size // 2 : size] + noise(max(0, size - 200_000), 2)
        frame = dictionary.compress(data)
        assert opened(frame, before) == data
        assert zstandard.frame_content_size(frame) == len(data)
        assert len(frame) < max(0, size - 200_000) + 1000
        dictionary.release_memory()
        assert opened(dictionary.compress(data), before) == data


def test_without_one_a_blob_is_compressed_by_itself():
    data = 1000 * b"by itself"
    assert opened(compress_blob(data), b"") == data == opened(BlobDictionary(b"").compress(data), b"")
