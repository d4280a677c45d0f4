"""A bolt database is read as its own library writes it: pages, branches, buckets within buckets; damage is told."""

from __future__ import annotations

import fcntl
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.containers.podman.bolt import BoltInvalid, read_bolt

PAGE = 4096
BRANCH, LEAF, META = 1, 2, 4


def fnv(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def meta(number: int, root: int, transaction: int) -> bytes:
    body = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, PAGE, 0, root, 0, 2, 99, transaction)
    return struct.pack("<QHHI", number, META, 0, 0) + body + struct.pack("<Q", fnv(body))


def leaf(number: int, items: list[tuple[bytes, int, bytes]]) -> bytes:
    heads, bodies, offset = b"", b"", 16 * len(items)
    for place, (key, flags, value) in enumerate(items):
        heads += struct.pack("<IIII", flags, offset - 16 * place + len(bodies), len(key), len(value))
        bodies += key + value
    return struct.pack("<QHHI", number, LEAF, len(items), 0) + heads + bodies


def branch(number: int, pages: list[int]) -> bytes:
    heads = b"".join(
        struct.pack("<IIQ", 16 * (len(pages) - place), 0, page) for place, page in enumerate(pages)
    )
    return struct.pack("<QHHI", number, BRANCH, len(pages), 0) + heads


def database(path: Path, *pages: bytes) -> Path:
    path.write_bytes(b"".join(page.ljust(PAGE, b"\0") for page in pages))
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Root: ``ctr``, a bucket with a page of its own, in which ``a`` is a bucket within the page."""
    inner = struct.pack("<QQ", 0, 0) + leaf(0, [(b"config", 0, b"{}")])
    return database(
        tmp_path / "db",
        meta(0, 3, 7),
        meta(1, 99, 6),  # the older one leads nowhere
        b"",
        branch(3, [4, 5]),
        leaf(4, [(b"ctr", 1, struct.pack("<QQ", 6, 0))]),
        leaf(5, [(b"plain", 0, b"value")]),
        leaf(6, [(b"a", 1, inner), (b"b", 0, b"c")]),
    )


def test_values_and_buckets_are_found_on_all_levels(sample: Path) -> None:
    root = read_bolt(sample)
    assert root.get(b"plain") == b"value" and root.get(b"ctr") is None
    containers = root.bucket(b"ctr")
    assert containers is not None and containers.values() == {b"b": b"c"}
    found = containers.bucket(b"a")
    assert found is not None and found.get(b"config") == b"{}"
    assert containers.bucket(b"b") is None and containers.bucket(b"z") is None


def test_a_meta_page_that_was_not_finished_gives_way_to_the_other(sample: Path) -> None:
    data = bytearray(sample.read_bytes())
    data[PAGE : 2 * PAGE] = meta(1, 3, 6).ljust(PAGE, b"\0")
    data[30] ^= 1
    sample.write_bytes(data)
    assert read_bolt(sample).get(b"plain") == b"value"
    data[PAGE + 30] ^= 1
    sample.write_bytes(data)
    with pytest.raises(BoltInvalid):
        read_bolt(sample)


def test_a_circle_of_pages_ends(tmp_path: Path) -> None:
    path = database(tmp_path / "db", meta(0, 3, 1), meta(1, 3, 0), b"", branch(3, [3]))
    with pytest.raises(BoltInvalid, match="circle"):
        read_bolt(path).get(b"x")


def test_who_writes_is_waited_for(sample: Path) -> None:
    with sample.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found: list[bytes | None] = []
        thread = threading.Thread(target=lambda: found.append(read_bolt(sample).get(b"plain")))
        thread.start()
        data = sample.read_bytes().replace(b"plainvalue", b"plainother")
        file.write(data)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_UN)
        thread.join()
    assert found == [b"other"]


@given(cut=st.integers(0, 7 * PAGE), place=st.integers(0, 7 * PAGE - 1), byte=st.integers(0, 255))
def test_only_the_declared_error_comes_out(
    tmp_path_factory: pytest.TempPathFactory, cut: int, place: int, byte: int
) -> None:
    base = tmp_path_factory.getbasetemp() / "bolt-junk"
    inner = struct.pack("<QQ", 0, 0) + leaf(0, [(b"config", 0, b"{}")])
    database(base, meta(0, 3, 7), meta(1, 3, 6), b"", leaf(3, [(b"ctr", 1, inner)]))
    data = bytearray(base.read_bytes())
    data[place % len(data)] = byte
    base.write_bytes(data[: max(0, len(data) - cut % PAGE)])
    try:
        bucket = read_bolt(base).bucket(b"ctr")
        if bucket is not None:
            bucket.values()
    except BoltInvalid:
        pass
