"""Recorders beside each other, with the part in C and without, and what they are given in tests."""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder import context, quick, scrub
from relive_recorder.options import Options
from relive_recorder.recorder import RECORD, recorder
from relive_recorder.ring import HEADER_BYTES, RECORD_HEADER, Ring
from relive_recorder.servers import asgi, handling, wsgi

sys.path.remove(str(INPROCESS))

native = quick.load()
assert native is not None, f"run make setup: {quick.why_not}"
handling.handle_in_c()
native.asgi(asgi.RecordedAsgi, asgi._received, asgi._note_sent, asgi._awaited)
native.wsgi(
    wsgi.RecordedWsgi,
    handling.describe,
    wsgi._header_name,
    wsgi._note_input,
    wsgi._note_start,
    wsgi._note_piece,
    wsgi._watch_answer,
    wsgi._leave,
)
context.in_c(native)

SECRETS = ["hunter2-hunter2", "grünes-Geheimnis", "a&b c=d/e", "4f6f0d", "tok_1234567890"]
LIKELY = [
    "password",
    "PassWord",
    "api-key",
    "to\u212aen",
    "https://u:p@h/",
    "Bearer abcdefgh1",
    "basic ",
    "4111 1111-11111111 1",
    "4111111111111111",
    "123456789012",
    "=",
    ":",
    '"',
    "\\",
    "é",
    "\U0001f600",
    "\ud800",
    "\x00\x7f\n",
    "&",
]
texts = st.lists(st.sampled_from(LIKELY + SECRETS) | st.text(max_size=6), max_size=8).map("".join)
plain = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | texts
packable = st.recursive(
    plain | st.binary(max_size=20) | texts.map(lambda one: one.encode("utf-8", "replace")),
    lambda below: st.lists(below, max_size=4) | st.tuples(below),
    max_leaves=8,
)


class Bench:
    """A recorder with a ring of its own, with the part in C or without."""

    def __init__(self, directory: Path, with_it: bool, number: int, most: int = 1024) -> None:
        self.most = most
        scrub.check_with(native.Checker if with_it else None)
        self.scrubber = scrub.Scrubber(names=["farbe"])
        self.scrubber._key = b"the same for all"
        scrub.check_with(None)
        for secret in SECRETS:
            self.scrubber.learn(secret)
        self.path = directory / f"{number}.ring"
        make = (
            (
                lambda fd, capacity, epoch: native.Quick(
                    fd, capacity, epoch, 0, most, self.scrubber, *context.for_quick()
                )
            )
            if with_it
            else None
        )
        self.ring = Ring(str(self.path), 1 << 16, RECORD, make)

    def __enter__(self) -> Bench:
        recorder.options = Options({"rings": str(self.path.parent), "inline_bytes": 4 * self.most})
        recorder.scrubber, recorder._ring, recorder.quick = self.scrubber, self.ring, self.ring.quick
        return self

    def __exit__(self, *_: object) -> None:
        recorder._ring = recorder.quick = None

    def records(self) -> list[tuple[str, bytes]]:
        """(what follows the lane, data) of each event, without what names files. Looks at every checksum."""
        raw = self.path.read_bytes()
        head, at, found = struct.unpack_from("<Q", raw, 40)[0], HEADER_BYTES, []
        while at < HEADER_BYTES + head:
            length, meta, crc, turned = RECORD_HEADER.unpack_from(raw, at)
            body = raw[at + 16 : at + 16 + length]
            assert zlib.crc32(body) == crc
            assert turned == length ^ 0xFFFFFFFF
            told = body[:meta].decode("ascii")
            json.loads(told)
            # Files of bodies have numbers of the process.
            found.append((re.sub(r'"file":"\d+-\d+\.body"', '"file":""', told.split(",", 3)[3]), body[meta:]))
            at += 16 + length
        return found


def pairs_in(directory: Path) -> Callable[..., list[Bench]]:
    """What makes pairs, in C and in Python, with rings in that directory; those of the pair before are given up."""
    numbers = iter(range(10**6))
    made: list[Bench] = []

    def make(most: int = 1024) -> list[Bench]:
        for bench in made:
            bench.ring.forget()
            bench.path.unlink()
        made[:] = [Bench(directory, with_it, next(numbers), most) for with_it in (True, False)]
        return list(made)

    return make
