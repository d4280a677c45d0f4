"""What is read early is asked for whole, in pieces that the kernel takes; nothing is wrong with what cannot be read."""

from __future__ import annotations

import os

from relive.kernel import read_early
from relive.kernel.read_early import EarlyReader, begin_reading, begin_reading_file


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


def test_a_file_that_is_not_there_is_left_to_who_reads_it(tmp_path):
    begin_reading_file(tmp_path / "none")


def test_large_files_are_read_to_their_ends_and_what_is_not_there_is_left_out(tmp_path, monkeypatch):
    """GIVEN two files, and one between them that is gone; THEN each byte of the two goes through the reader, in order."""
    first, last = tmp_path / "first", tmp_path / "last"
    first.write_bytes(b"1" * 3_000_000)
    last.write_bytes(b"2" * 5)
    read = []
    really = os.sendfile

    def send(out, file, offset, count):
        sent = really(out, file, offset, count)
        read.append(sent)
        return sent

    monkeypatch.setattr(read_early.os, "sendfile", send)
    with EarlyReader() as reader:
        reader.begin([first, tmp_path / "none", last])
        reader._thread.join()
    assert sum(read[: read.index(0)]) == 3_000_000
    assert read[read.index(0) + 1 :] == [5, 0]


def test_nobody_waits_for_the_end_of_a_file(tmp_path):
    endless = tmp_path / "endless"
    with endless.open("wb") as file:
        file.truncate(1 << 42)  # to read it would take minutes, and all memory
    with EarlyReader() as reader:
        reader.begin([endless])
    assert not reader._thread.is_alive()
