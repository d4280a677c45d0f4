"""What the kernel takes of a packet by the program of a port: asked of the kernel itself, packet by packet."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from proxies.packet_bytes import ip4, ip6, tcp
from relive.kernel import portprogram
from relive.kernel.bpf import make_map
from relive.kernel.portprogram import BEGINNING, load_port_program

PORT, CLIENT, LIMIT, ALL = 8000, 40000, 65536, 0x40000
FIN, SYN, ACK = 1, 2, 16
HEADS = {4: 20 + 32, 6: 40 + 32}
LONG = 1 << 20
_LOOK_UP, _UPDATE, _NEXT_KEY, _TEST_RUN = 1, 2, 4, 10
_READ_AT = 28  # in what is known of a connection: its length has been read
_WHOLE_SEGMENT = 60000


class Filter:
    """The program, and one connection that it sees; ``version``: of IP."""

    def __init__(self, version: int = 4) -> None:
        self.program = load_port_program(PORT, LIMIT)
        self.version, self.client_port = version, CLIENT
        self.heads = HEADS[version]
        self.up, self.down = 100, (1 << 32) - 5000  # its numbers come round early

    def run(self, raw: bytes, version: int | None = None) -> int:
        kind = 0x0800 if (version or self.version) == 4 else 0x86DD
        data = ctypes.create_string_buffer(bytes(12) + struct.pack(">H", kind) + raw)
        said = struct.pack("=IIIIQQ", self.program, 0, len(data) - 1, 0, ctypes.addressof(data), 0)
        attributes = ctypes.create_string_buffer(said, 128)
        bpf_run(attributes)
        return int(struct.unpack_from("=I", attributes, 4)[0])

    def packet(self, *, from_client: bool, sequence: int, flags: int, data: bytes, size: int | None) -> bytes:
        ports = (self.client_port, PORT) if from_client else (PORT, self.client_port)
        ends = ("192.0.2.1", "198.51.100.9") if self.version == 4 else ("2001:db8::1", "2001:db8::2")
        body = tcp(*ports, sequence % (1 << 32), 7, flags, data)
        raw = (ip4 if self.version == 4 else ip6)(*(ends if from_client else ends[::-1]), body)
        if size is not None:  # the kernel does not look at the bytes of a body
            at, known = (2, self.heads) if self.version == 4 else (4, self.heads - 40)
            raw = raw[:at] + struct.pack(">H", known + size) + raw[at + 2 :]
        return raw

    def asks(self, data: bytes = b"GET / HTTP/1.1\r\n\r\n", flags: int = ACK) -> int:
        taken = self.run(self.packet(from_client=True, sequence=self.up, flags=flags, data=data, size=None))
        self.up += len(data)
        return taken

    def tells(self, data: bytes, flags: int = ACK, size: int | None = None) -> int:
        """``size``: bytes that the segment has, of which ``data`` are the first."""
        self.begun = data
        taken = self.run(
            self.packet(from_client=False, sequence=self.down, flags=flags, data=data, size=size)
        )
        self.down += len(data) if size is None else size
        return taken

    def goes_on(self, size: int = _WHOLE_SEGMENT, at: int | None = None) -> int:
        """So many further bytes of the service, or such that it sends again."""
        sequence = self.down if at is None else at
        taken = self.run(
            self.packet(from_client=False, sequence=sequence, flags=ACK, data=b"x" * 64, size=size)
        )
        if at is None:
            self.down += size
        return taken

    def cut(self, begun: int) -> list[int]:
        """What is to be taken of the segments of a body of ``LONG`` bytes, of whose answer so many were before them."""
        in_head = len(self.begun.partition(b"\r\n\r\n")[0]) + 4
        return [self.heads + max(0, in_head + BEGINNING - begun)] + [self.heads] * 17

    def rest(self, whole: int) -> list[int]:
        """What is taken of all segments of a body."""
        taken = []
        while whole:
            size = min(whole, _WHOLE_SEGMENT)
            taken.append(self.goes_on(size))
            whole -= size
        return taken


def map_call(
    command: int, descriptor: int, key: ctypes.Array[ctypes.c_char] | None, value: ctypes.Array[ctypes.c_char]
) -> None:
    at = 0 if key is None else ctypes.addressof(key)
    said = struct.pack("=IIQQQ", descriptor, 0, at, ctypes.addressof(value), 0)
    attributes = ctypes.create_string_buffer(said, 128)
    if ctypes.CDLL(None, use_errno=True).syscall(321, command, attributes, len(attributes)) < 0:
        raise OSError(ctypes.get_errno(), "bpf")


def bpf_run(attributes: ctypes.Array[ctypes.c_char]) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(321, _TEST_RUN, attributes, len(attributes)) < 0:
        raise OSError(ctypes.get_errno(), "BPF_PROG_TEST_RUN")


@pytest.fixture(params=[4, 6])
def one(request: pytest.FixtureRequest) -> Iterator[Filter]:
    made = Filter(request.param)
    yield made
    os.close(made.program)


def head(length: int | str = LONG, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nServer: x\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def test_of_a_long_answer_only_the_beginning_is_taken(one: Filter) -> None:
    """And the segment in which it ends as a whole, if something else is in it."""
    assert one.asks() == ALL
    assert one.tells(head()) == ALL
    assert one.rest(LONG) == one.cut(len(head()))
    assert one.asks() == ALL and one.tells(b"HTTP/1.1 204 No Content\r\n\r\n") == ALL


@pytest.mark.parametrize("size", [1000, BEGINNING, BEGINNING + 500])
def test_an_answer_whose_head_is_with_its_body_is_cut_alike(one: Filter, size: int) -> None:
    one.asks()
    begun = head() + b"x" * 1000
    taken = one.tells(begun, size=len(head()) + size)
    assert taken == (ALL if size <= BEGINNING else one.heads + len(head()) + BEGINNING)
    assert one.rest(LONG - size) == one.cut(len(head()) + size)


@pytest.mark.parametrize(
    ("length", "is_long"), [(LIMIT, False), (LIMIT + 1, True), (BEGINNING, False), (0, False)]
)
def test_an_answer_is_long_from_the_limit_on(one: Filter, length: int, *, is_long: bool) -> None:
    one.asks()
    one.tells(head(length))
    taken = one.rest(length)
    assert taken == (one.cut(len(head(length)))[:2] if is_long else [ALL] * len(taken))


def test_what_is_behind_the_length_is_taken(one: Filter) -> None:
    """A pipelined answer begins in a segment in which another ends."""
    one.asks()
    begun = head(3 * _WHOLE_SEGMENT)
    one.tells(begun)
    assert [one.goes_on() for _ in range(2)] == one.cut(len(begun))[:2]
    assert one.goes_on(_WHOLE_SEGMENT + 1) == ALL
    assert one.goes_on() == ALL


@pytest.mark.parametrize(
    "begun",
    [
        head(status="500 Oh"),
        head(status="404 No"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        head(more="transfer-ENCODING: chunked\r\n"),
        head(more="Content-Length: 5\r\n"),
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Content-Length: 10000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1e7\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n",  # the head goes on elsewhere
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000 + b"\r\nContent-Length: 10000000\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 10000000\n\n",
        b"HTTP/2.1 200 OK\r\nContent-Length: 10000000\r\n\r\n",
        b"+OK 10000000\r\n",
        b"x",
    ],
)
def test_whatever_else_is_said_is_taken_as_a_whole(one: Filter, begun: bytes) -> None:
    one.asks()
    one.tells(head())  # of which nothing is to stay
    one.asks()
    assert one.tells(begun) == ALL
    assert set(one.rest(LONG)) == {ALL}


@pytest.mark.parametrize(
    "begun",
    [
        head(status="206 Partial"),
        b"HTTP/1.0 200 OK\r\ncontent-length:1048576\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 900 + b"\r\nCONTENT-LENGTH: 1048576\r\n\r\n",
    ],
)
def test_heads_are_read_as_they_are_written(one: Filter, begun: bytes) -> None:
    one.asks()
    one.tells(begun)
    assert one.rest(LONG) == one.cut(len(begun))


def test_a_body_that_looks_like_a_head_is_none(one: Filter) -> None:
    one.asks()
    one.tells(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    one.tells(head())
    assert set(one.rest(LONG)) == {ALL}


def test_an_answer_is_taken_as_a_whole_once_the_client_speaks(one: Filter) -> None:
    """What it has asked meanwhile may be answered at any place."""
    one.asks()
    one.tells(head())
    assert one.rest(4 * _WHOLE_SEGMENT)[-1] == one.heads
    one.asks()
    assert set(one.rest(LONG - 4 * _WHOLE_SEGMENT)) == {ALL}


def test_an_answer_without_its_body_leaves_nothing_behind(one: Filter) -> None:
    """HEAD, whose answer says a length."""
    one.asks(b"HEAD / HTTP/1.1\r\n\r\n")
    one.tells(head())
    one.asks()
    one.tells(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert set(one.rest(LONG)) == {ALL}


def test_what_is_sent_again_is_taken_as_the_first_time(one: Filter) -> None:
    one.asks()
    begun = one.down
    one.tells(head())
    one.rest(8 * _WHOLE_SEGMENT)
    assert one.goes_on(at=begun) == one.heads + len(head()) + BEGINNING
    assert one.goes_on(BEGINNING, at=begun) == ALL
    assert one.goes_on(at=begun + 10_000) == one.heads + len(head()) + BEGINNING - 10_000
    assert one.goes_on(at=begun + 5 * _WHOLE_SEGMENT) == one.heads
    assert one.goes_on() == one.heads


def test_an_answer_of_more_than_numbers_can_count_is_cut_to_its_end(one: Filter) -> None:
    one.asks()
    whole = 5 << 30
    one.tells(head(whole))
    one.rest(2 * _WHOLE_SEGMENT)
    for _ in range(5):
        one.down += (1 << 30) - _WHOLE_SEGMENT
        assert one.goes_on() == (one.heads if one.down <= (1 << 32) - 5000 + len(head()) + whole else ALL)


def test_another_connection_of_the_same_ends_begins_anew(one: Filter) -> None:
    one.asks()
    one.tells(head())
    one.rest(4 * _WHOLE_SEGMENT)
    assert one.asks(b"", SYN) == ALL
    assert set(one.rest(LONG - 4 * _WHOLE_SEGMENT)) == {ALL}


def test_a_length_is_not_taken_for_that_of_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a long answer, and the head of another; WHEN a segment comes while its length is read; THEN it is whole."""
    maps: list[int] = []

    def made(*said: Any) -> int:
        descriptor = make_map(*said)
        maps.append(os.dup(descriptor))
        return descriptor

    monkeypatch.setattr(portprogram, "make_map", made)
    one = Filter()
    one.asks()
    one.tells(head())
    assert one.rest(LONG) == one.cut(len(head()))
    one.asks()
    one.tells(head(LIMIT))
    key, known = ctypes.create_string_buffer(40), ctypes.create_string_buffer(2048)
    map_call(_NEXT_KEY, maps[0], None, key)
    map_call(_LOOK_UP, maps[0], key, known)
    assert struct.unpack_from("=I", known, _READ_AT)[0] == 0
    struct.pack_into("=I", known, _READ_AT, 1)
    map_call(_UPDATE, maps[0], key, known)
    assert set(one.rest(LIMIT)) == {ALL}
    for descriptor in (one.program, *maps):
        os.close(descriptor)


def test_connections_are_told_apart(one: Filter) -> None:
    one.asks()
    one.tells(head())
    one.rest(4 * _WHOLE_SEGMENT)
    one.client_port += 1
    assert one.goes_on() == ALL
    one.client_port -= 1
    assert one.goes_on() == one.heads


def test_only_what_says_something_at_the_port_is_taken(one: Filter) -> None:
    assert one.asks(b"", ACK) == 0 and one.tells(b"", ACK) == 0
    assert one.asks(b"", SYN) == ALL and one.tells(b"", FIN | ACK) == ALL
    other = (ip4 if one.version == 4 else ip6)(
        *(("192.0.2.1", "192.0.2.2") if one.version == 4 else ("::1", "::2")),
        tcp(CLIENT, PORT + 1, 1, 1, ACK, b"x"),
    )
    assert one.run(other) == 0


def test_nothing_but_tcp_is_taken() -> None:
    one = Filter()
    raw = bytearray(one.packet(from_client=True, sequence=1, flags=ACK, data=b"x", size=None))
    assert one.run(bytes(raw)) == ALL
    raw[9] = 17
    assert one.run(bytes(raw)) == 0
    raw[9], raw[7] = 6, 1  # a fragment, not the first
    assert one.run(bytes(raw)) == 0
    assert one.run(bytes(raw[:30])) == 0
    os.close(one.program)
