"""Connections followed in C and by Python are written down the same, to the byte, whatever their packets hold."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.proxies.ingress._segments import ACK, FIN, RST, SYN, Segment
from relive.proxies.ingress._sights import Verdict
from relive.proxies.ingress.options import RELAY
from relive.recording.events import EventKind

from .hostile_packets import BODY_LIMIT, play, read_damaged
from .packet_bytes import ip4, packet, tcp
from .packet_scene import GET, OK, ROUND, Scene

SOURCE = Path(__file__).parents[2] / "native"
SEEDS = [*range(int(os.environ.get("SIGHTS_SEEDS", "150"))), 1981]  # the last: a chunk too long, in pieces


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[list[Scene]]:
    """Followed in C, and by Python."""
    made = [Scene(tmp_path / str(way), by_sights=way, body_limit=BODY_LIMIT) for way in (True, False)]
    yield made
    for one in made:
        one.close()


def _told(scene: Scene) -> list[dict[str, Any]]:
    """What agents hear, without the seconds, of which the last digit is another."""
    return [{key: value for key, value in one.items() if key != "seconds"} for one in scene.hub.messages]


def test_both_write_the_same(scenes: list[Scene]) -> None:
    """GIVEN connections whose bytes and packets are as bad as can be, and commits among them
    WHEN C follows them as far as it goes, or Python from the start
    THEN the recordings are equal to the byte, and agents hear the same.
    """
    for seed in SEEDS:
        for scene in scenes:
            play(scene, seed, connections=1)
        by_c, by_python = (scene.written() for scene in scenes)
        assert by_c == by_python, f"seed {seed}: {_first_difference(scenes)}"
        assert _told(scenes[0]) == _told(scenes[1]), f"seed {seed}"


def _first_difference(scenes: list[Scene]) -> object:
    both = zip(*(scene.events() for scene in scenes), strict=False)
    return next(((one, other) for one, other in both if one != other), "one of them goes on")


def test_what_was_for_python_is_followed_in_c_again(scenes: list[Scene]) -> None:
    """GIVEN a chunked request, WHEN its answer is whole, THEN the connection is C's again, with all that it was."""
    scene, _ = scenes
    assert scene.sights is not None
    talk = scene.talk()
    talk.exchange()
    talk.put(talk.asks(b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"))
    assert scene.sights.counts().connections == 0
    talk.put(talk.tells(OK))
    assert scene.sights.counts().connections == 1
    talk.exchange()
    talk.put(talk.asks(b"", FIN | ACK))
    talk.put(talk.tells(b"", FIN | ACK))
    assert [one.ended.value for one in scene.exchanges()] == ["answered"] * 3
    (closed,) = scene.events(EventKind.CONNECTION_CLOSED)
    assert closed.fields["requests"] == 3


@pytest.mark.parametrize("end", [FIN, RST, 0])
def test_what_is_not_http_is_followed_in_c_from_its_first_answer_on(scenes: list[Scene], end: int) -> None:
    """GIVEN a protocol of its own, in pieces that are late, said twice or longer than is kept, and a commit amid it
    WHEN it ends, is reset, or packets of it are missing
    THEN C and Python have written the same, C from the first answer on.
    """
    for scene in scenes:
        chance = random.Random(end)
        talk = scene.talk()
        talk.put(talk.asks(b"\0\1ask"))
        talk.put(talk.tells(b"told"))
        if scene.sights is not None:
            assert scene.sights.counts().connections == 1
        for turn in range(60):
            late, size = talk.asks(b"late"), chance.choice((1, 50, BODY_LIMIT - 1, 2 * BODY_LIMIT))
            talk.put(talk.asks(chance.randbytes(size)))
            if turn == 30:
                crossed = (late.sequence + 2) % ROUND
                scene.table.limit({talk.ends: (crossed, talk.down)})
            talk.put(late)
            talk.put(late)
            if turn == 30:
                assert scene.table.open_requests() == []
                scene.traffic.writer.append(EventKind.COMMIT_TAKEN, fields={}, at=(scene.now, scene.now))
                scene.table.unlimit()
            talk.put(talk.tells(chance.randbytes(size)))
        if end:
            talk.put(talk.asks(b"", end | ACK))
        else:
            talk.tells(b"missing")
        talk.put(talk.tells(b"bye", FIN | ACK))
        talk.put(talk.asks(b"", ACK))
        assert scene.table.gaps == (not end)
    by_c, by_python = (scene.written() for scene in scenes)
    assert by_c == by_python, _first_difference(scenes)
    (closed,) = scenes[0].events(EventKind.CONNECTION_CLOSED)
    assert closed.fields["unframed"]
    assert closed.fields.get("lost", False) is not bool(end)


_BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + b"y" * 4000
_CHUNKED = b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [_BODY, _CHUNKED, b"HTTP/1.0 200 OK\r\n\r\nuntil the end"])
@pytest.mark.parametrize("ends_within", [True, False])
def test_a_request_for_python_within_an_answer(
    scenes: list[Scene], answer: bytes, *, ends_within: bool
) -> None:
    """GIVEN an answer that C has begun to record
    WHEN the client sends a chunked request, and the connection ends within that answer, or goes on
    THEN the request is recorded at its place, by both forms the same.
    """
    chunked = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    for scene in scenes:
        talk = scene.talk()
        talk.put(talk.asks(GET))
        talk.put(talk.tells(answer[:50]))
        talk.put(talk.asks(chunked))
        assert scene.kinds().count("request-started") == 2
        if not ends_within:
            talk.put(talk.tells(answer[50:] + OK))
        talk.put(talk.tells(b"", FIN | ACK))
        talk.put(talk.asks(b"", FIN | ACK))
    assert scenes[0].written() == scenes[1].written()
    assert _told(scenes[0]) == _told(scenes[1])
    assert scenes[0].traffic.observed.relay.counts().in_flight == 0


def _untaken(segment: Segment, kept: int) -> Segment:
    """Of which the kernel has taken so many bytes."""
    return segment._replace(data=segment.data[:kept], lacks=len(segment.data) - kept)


_LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"
_ASKED = {
    "by C": GET,
    "by Python": b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_", _ASKED.values(), ids=list(_ASKED))
@pytest.mark.parametrize("order", ["in order", "late", "twice", "at the end"])
def test_of_a_body_that_was_not_taken_its_beginning_and_its_size_are_recorded(
    scenes: list[Scene], request_: bytes, order: str
) -> None:
    """GIVEN an answer of whose segments the kernel has taken the first, and of the others only the heads
    WHEN they come in order, or otherwise, or its end is the connection's
    THEN it is whole, with how many bytes are missing, no checksum, and nothing of what came behind them; and what follows is known.
    """
    for scene in scenes:
        talk = scene.talk()
        talk.put(talk.asks(request_))
        talk.put(talk.tells(_LONG + b"a" * 1000))
        partly, none, last = talk.tells(b"b" * 3000), talk.tells(b"c" * 4000), talk.tells(b"d" * 1000)
        segments = [_untaken(partly, 500), _untaken(none, 0), last]
        if order == "late":
            segments = [segments[1], segments[0], last]
        elif order == "twice":
            segments = [segments[0], _untaken(partly, 0), segments[1], none, last]
        elif order == "at the end":
            segments[2] = _untaken(last, 0)._replace(flags=FIN | ACK)
        for one in segments:
            talk.put(one)
        if order != "at the end":
            talk.exchange()
        assert scene.table.gaps == 0
        first, *others = scene.exchanges()
        assert (first.ended.value, first.answer_cut, first.answer_blake2b) == ("answered", 7500, None)
        assert first.answer_body() == b"a" * 1000 + b"b" * 500
        assert [one.answer_body() for one in others] == [b"ok"] * (order != "at the end")
    assert scenes[0].written() == scenes[1].written(), _first_difference(scenes)


@pytest.mark.parametrize(
    "begun", [_LONG, _CHUNKED[:50], b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"+"]
)
@pytest.mark.parametrize("size", [9001, 1])
def test_what_was_not_taken_elsewhere_is_missing(scenes: list[Scene], begun: bytes, size: int) -> None:
    """GIVEN bytes that may be of anything, WHEN they were not taken, THEN that is said, as of packets that were lost."""
    for scene in scenes:
        talk = scene.talk()
        talk.put(talk.asks(GET))
        talk.put(talk.tells(begun))
        talk.put(_untaken(talk.tells(b"x" * size), 0))
        talk.exchange()
        assert scene.table.gaps == (begun != _LONG or size > 9000)
    assert scenes[0].written() == scenes[1].written(), _first_difference(scenes)


def test_a_commit_has_what_was_written_and_not_taken(scenes: list[Scene]) -> None:
    """GIVEN an answer that the service had written when a commit was taken, WHEN it is seen later, THEN it is the commit's."""
    for scene in scenes:
        talk = scene.talk()
        talk.put(talk.asks(GET))
        begun, rest = talk.tells(_LONG + b"a" * 1000), _untaken(talk.tells(b"b" * 8000), 0)
        scene.table.limit({talk.ends: (talk.up, talk.down)})
        later = _untaken(talk.tells(b"c"), 0)
        seen = [scene.table.observe_written(one._replace(wall_ns=scene.now)) for one in (begun, rest, later)]
        assert seen == [True, True, False]
        assert scene.table.open_requests() == []
        scene.table.unlimit()
    assert scenes[0].written() == scenes[1].written(), _first_difference(scenes)


def test_a_connection_that_is_refused_is_over(scenes: list[Scene]) -> None:
    for scene in scenes:
        talk = scene.talk(begun=False)
        talk.put(talk.asks(b"", SYN))
        talk.put(talk.tells(b"", RST | ACK))
        assert scene.table.count == 0


def test_what_the_log_has_is_looked_at_anew_for_what_comes_later(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one")
    with contextlib.closing(Scene(tmp_path / "there", by_sights=True, logs=(str(log),))) as scene:
        talk = scene.talk()
        talk.exchange()
        log.write_text("one and two")
        talk.exchange()
        assert [one.log_offsets_after for one in scene.exchanges()] == [{str(log): 3}, {str(log): 11}]


def test_a_flood_of_connections_that_say_nothing_is_let_go_of(scenes: list[Scene]) -> None:
    """GIVEN a connection with a request, WHEN 90,000 others only begin, THEN the older of them are gone, and it is not."""
    scene, _ = scenes
    assert scene.sights is not None
    talk = scene.talk()
    talk.put(talk.asks(GET))
    packets = []
    for host in ("10.0.0.8", "10.0.0.9"):
        one = packet(ip4(host, "127.0.0.1", tcp(0, 8000, 99, 0, SYN, b"")))
        at = one.index(b"\x00\x00" + (8000).to_bytes(2, "big") + (99).to_bytes(4, "big"))
        packets += [one[:at] + port.to_bytes(2, "big") + one[at + 2 :] for port in range(20000, 65000)]
    block = b"".join(packets)
    scene.sights.begin_block(len(packets))
    assert (
        scene.sights.take(ctypes.create_string_buffer(block), len(block), None, 0, 1 << 20)
        is Verdict.BLOCK_OVER
    )
    assert scene.sights.counts().connections < 70_000
    talk.put(talk.tells(OK))
    assert [one.ended.value for one in scene.exchanges()] == ["answered"]


def test_a_flood_of_small_segments_out_of_order_is_given_up(scenes: list[Scene]) -> None:
    """GIVEN a byte that never comes, WHEN 16,400 come after it one by one, THEN they are not kept, which is said."""
    for scene in scenes:
        talk = scene.talk()
        talk.put(talk.asks(GET))
        one = talk.asks(b"x")._replace(wall_ns=scene.now)
        for behind in range(1, 16_401):
            scene.table.observe(one._replace(sequence=one.sequence + behind))
        assert scene.table.gaps == 1
    assert scenes[0].written() == scenes[1].written()


def test_many_connections_and_damaged_blocks_do_no_harm(scenes: list[Scene]) -> None:
    for seed in range(20):
        play(scenes[0], seed, connections=5)
        read_damaged(scenes[0], seed)
    assert any(scenes[0].exchanges())


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_packets_for_minutes_under_sanitizers(tmp_path: Path) -> None:
    """``RELAY_SOAK_SECONDS=300 pytest -m soak tests/proxies/test_sights.py``."""
    compiler = shutil.which("gcc")
    assert compiler is not None
    library = tmp_path / RELAY
    flags = ("-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    sources = [SOURCE / "relay_library.c", *(SOURCE / "relay_library").glob("*.c")]
    subprocess.run(
        [compiler, *flags, "-shared", "-fPIC", "-pthread", *map(str, sources), "-o", str(library)], check=True
    )
    wanted = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    seconds = os.environ.get("RELAY_SOAK_SECONDS", "60")
    environment = {"LD_PRELOAD": ":".join(wanted), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    played = subprocess.run(
        [sys.executable, "-m", "proxies.hostile_packets", str(library), str(tmp_path / "homes"), seconds],
        env=os.environ | environment | {"PYTHONPATH": str(SOURCE.parent / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stderr[-8000:]
    assert int(played.stdout) > 0
