"""What is compressed against a dictionary comes back with it, and only with it."""

from __future__ import annotations

import os

import pytest
import zstandard

from relive.store.pages.dictionary import Dictionary


@pytest.mark.parametrize("pages", [1, 100, 2048])
def test_content_of_the_dictionary_is_not_kept_again(pages):
    data = os.urandom(4096 * pages)
    again = data[-4096 + 64 :] + b"new"
    small = Dictionary(data).compressor.compress(again)
    assert len(small) < 100
    assert Dictionary(data).decompressor.decompress(small) == again
    with pytest.raises(zstandard.ZstdError):
        zstandard.ZstdDecompressor().decompress(small)
