"""The parts of the relay that can be asked alone, beside what Python makes of the same bytes; and hostile traffic."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import threading
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.config import load_settings
from relive.proxies.ingress.options import RELAY
from relive.recording.chunked import ChunkedBody, ChunkError
from relive.recording.heads import HeadError, parse_answer_head, parse_request_head
from relive.recording.reader import Recording

from .conftest import RunningProxy
from .hostile_traffic import HostileService, attack

SOURCE = Path(__file__).parents[2] / "native"
WHOLE, UNFINISHED, ODD = range(3)
UNTIL_CLOSE, IN_CHUNKS = 2**64 - 1, 2**64 - 2

_library = ctypes.CDLL(str(load_settings().tools_path / RELAY))
_library.relay_crc32.restype = ctypes.c_uint32
_library.relay_chunked_size.restype = ctypes.c_int64


def crc32(data: bytes) -> int:
    return int(_library.relay_crc32(data, ctypes.c_size_t(len(data))))


def blake2b(data: bytes, step: int) -> bytes:
    digest = ctypes.create_string_buffer(32)
    _library.relay_blake2b(data, ctypes.c_size_t(len(data)), ctypes.c_size_t(step), digest)
    return digest.raw


def read_head(name: str, data: bytes) -> tuple[int, list[int]]:
    found = (ctypes.c_uint64 * 3)()
    verdict = getattr(_library, name)(data, ctypes.c_size_t(len(data)), found)
    return verdict, list(found)


def chunked_size(data: bytes, step: int) -> int:
    """Where the body ends; -1: it does not yet, -2: it is malformed."""
    return int(_library.relay_chunked_size(data, ctypes.c_size_t(len(data)), ctypes.c_size_t(step)))


@given(st.binary(max_size=700), st.integers(1, 300))
def test_checksums_are_those_of_the_libraries(data: bytes, step: int):
    assert crc32(data) == zlib.crc32(data)
    assert blake2b(data, step) == hashlib.blake2b(data, digest_size=32).digest()


def test_checksums_of_much():
    data = os.urandom(1_000_003)
    for size in (1023, 1024, 1025, 1279, 1280, 2047, 65_536, len(data)):
        assert crc32(data[:size]) == zlib.crc32(data[:size])
    assert blake2b(data, 65_536) == hashlib.blake2b(data, digest_size=32).digest()


# Text that is nearly a head, made of what makes a difference in one.
_WORDS = st.sampled_from(
    (
        *(
            b"GET",
            b"HEAD",
            b"CONNECT",
            b"POST",
            b" ",
            b"  ",
            b"/",
            b"/a b",
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"HTTP/2.0",
            b"HTTP/1.12",
        ),
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b":",
            b": ",
            b"Host: x",
            b"Content-Length: 5",
            b"Content-Length: 05",
            b"content-length:6",
        ),
        *(
            b"Content-Length: 5, 5",
            b"Content-Length: -1",
            b"Content-Length: " + b"9" * 19,
            b"Transfer-Encoding: chunked",
        ),
        *(
            b"Transfer-Encoding: gzip, chunked",
            b"Connection: upgrade",
            b"Upgrade: h2c",
            b"Expect: 100-continue",
            b"\t",
            b" folded",
        ),
        *(
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 204",
            b"HTTP/1.0 304 ",
            b"HTTP/1.1 101 S",
            b"HTTP/1.1 99 x",
            b"HTTP/1.1 2000",
            b"\x80",
        ),
    )
)
_TEXT = st.lists(_WORDS, max_size=14).map(b"".join)
_LINES = st.lists(_WORDS, min_size=1, max_size=6).map(lambda words: b"\r\n".join(words) + b"\r\n\r\n")


@settings(max_examples=300)
@given(_TEXT | _LINES | st.binary(max_size=60))
def test_a_request_head_that_is_taken_means_the_same_to_python(data: bytes):
    verdict, (size, length, is_head) = read_head("relay_read_request_head", data)
    if verdict != WHOLE:
        return
    head = parse_request_head(data[:size])
    assert (
        head.raw.endswith(b"\r\n\r\n")
        and data.find(b"\n\r\n") == size - 3
        and data.find(b"\n\n", 0, size) < 0
    )
    assert (head.length, head.method == b"HEAD") == (length, bool(is_head))
    assert not (head.asks_upgrade or head.expects_continue)


@settings(max_examples=300)
@given(_TEXT | _LINES | st.binary(max_size=60))
def test_an_answer_head_that_is_taken_means_the_same_to_python(data: bytes):
    verdict, (size, status, length) = read_head("relay_read_answer_head", data)
    if verdict != WHOLE:
        return
    head = parse_answer_head(data[:size])
    meant = UNTIL_CLOSE if head.lasts_until_close else IN_CHUNKS if head.length is None else head.length
    assert (head.status, meant, head.is_interim) == (status, length, False)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /a?b HTTP/1.0\r\ncontent-LENGTH: \t17 \r\nX:\r\n\r\n",
        b"HEAD * HTTP/1.1\r\n\r\n",
    ],
)
def test_plain_heads_are_taken_and_no_part_of_one_is(head: bytes):
    verdict, (size, length, _) = read_head("relay_read_request_head", head + b"rest")
    assert (verdict, size, length) == (WHOLE, len(head), parse_request_head(head).length)
    assert all(read_head("relay_read_request_head", head[:cut])[0] == UNFINISHED for cut in range(len(head)))


def test_what_python_refuses_is_left_to_it():
    for head in (b"GET  / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\na b: c\r\n\r\n", b"G\0T / HTTP/1.1\r\n\r\n"):
        with pytest.raises(HeadError):
            parse_request_head(head)
        assert read_head("relay_read_request_head", head)[0] == ODD


_CHUNK_WORDS = st.sampled_from(
    (
        b"0",
        b"3",
        b"a",
        b"\r\n",
        b"\n",
        b"\r",
        b"abc",
        b"0123456789",
        b";x=y",
        b" ",
        b"T: v",
        b"3\r\nabc\r\n",
        b"0\r\n",
        b"\0",
        b"f" * 16,
    )
)


@settings(max_examples=300)
@given(st.lists(_CHUNK_WORDS, max_size=12).map(b"".join), st.integers(1, 20))
def test_chunk_framing_ends_where_python_says(data: bytes, step: int):
    found = chunked_size(data, step)
    try:
        end = ChunkedBody().advance(data)
    except ChunkError:
        assert found == -2
        return
    assert found == (-1 if end is None else end)


def test_long_lines_and_trailers_are_refused():
    assert chunked_size(b"1;" + b"x" * 20_000, 1000) == -2
    assert chunked_size(b"0\r\n" + b"T: v\r\n" * 20_000, 1000) == -2
    assert chunked_size(b"4000\r\n" + b"x" * 0x4000 + b"\r\n0\r\n\r\n", 1000) == 6 + 0x4000 + 7


def assert_it_lives(directory: Path, seconds: float, clients: int, *options: str) -> None:
    service = HostileService(seed=7)
    proxy = RunningProxy(directory, service.port, "--hang-after", "0.2", "--body-limit", "200000", *options)
    agent = proxy.agent()
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=attack, args=(proxy.port, seed, until)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        for message in ({"op": "close", "id": "gate"}, {"op": "open", "id": "gate", "commit": None}):
            agent.say(**message)
            while agent.hear().get("id") != "gate":
                pass
    for thread in threads:
        thread.join()
    assert proxy.process.poll() is None, proxy.words()
    proxy.stop()  # with status 0
    service.close()
    assert sum(1 for _ in Recording(proxy.directory).events()) > 1


def test_hostile_clients_and_services_do_it_no_harm(tmp_path: Path):
    assert_it_lives(tmp_path, 2.0, 2, "--relay", str(load_settings().tools_path / RELAY))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_hostile_traffic_for_minutes_under_sanitizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``RELAY_SOAK_SECONDS=300 pytest -m soak tests/proxies/test_relay.py``."""
    compiler = shutil.which("gcc")
    assert compiler is not None
    library = tmp_path / RELAY
    sources = [SOURCE / "relay_library.c", *(SOURCE / "relay_library").glob("*.c")]
    flags = (
        "-std=gnu11",
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
        "-shared",
        "-fPIC",
        "-pthread",
    )
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(library)], check=True)
    wanted = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    monkeypatch.setenv("LD_PRELOAD", ":".join(wanted))
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    assert_it_lives(tmp_path, float(os.environ.get("RELAY_SOAK_SECONDS", "60")), 6, "--relay", str(library))
