"""Frames of Docker's log stream."""

from __future__ import annotations

import io
import struct

import pytest

from relive.watching.docker_logs import frames


def frame(number: int, content: bytes) -> bytes:
    return struct.pack(">BxxxI", number, len(content)) + content


def test_frames_go_to_the_stream_that_they_name():
    stream = io.BytesIO(frame(1, b"out\n") + frame(2, b"err\n") + frame(1, b""))
    assert list(frames(stream)) == [(False, b"out\n"), (True, b"err\n"), (False, b"")]


@pytest.mark.parametrize(
    "rest", [b"\x01", frame(1, b"cut off")[:-1], struct.pack(">BxxxI", 1, 1 << 31) + b"x"]
)
def test_what_is_cut_off_or_no_frame_ends_it(rest):
    assert list(frames(io.BytesIO(frame(2, b"whole") + rest))) == [(True, b"whole")]
