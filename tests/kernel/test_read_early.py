"""What is to be read early is asked for whole, in pieces that the kernel takes, and nothing is wrong with what cannot be read."""

from __future__ import annotations

import os

from relive.kernel import read_early
from relive.kernel.read_early import begin_reading


def test_every_byte_is_asked_for_once_in_small_pieces(monkeypatch):
    asked = []

    def advise(file, offset, length, advice):
        assert (file, advice) == (7, os.POSIX_FADV_WILLNEED)
        asked.append((offset, length))

    monkeypatch.setattr(read_early.os, "posix_fadvise", advise)
    begin_reading(7, 1000, 3_000_000)
    assert max(length for _, length in asked) <= 512 << 10
    covered = [byte for offset, length in asked for byte in (offset, offset + length)]
    assert covered[0] == 1000
    assert covered[-1] == 3_000_000
    assert covered[1:-1:2] == covered[2::2]


def test_what_cannot_be_read_ahead_is_left_to_who_reads_it():
    reading, writing = os.pipe()
    try:
        begin_reading(reading, 0, 4096)  # a pipe: ESPIPE
    finally:
        os.close(reading)
        os.close(writing)
