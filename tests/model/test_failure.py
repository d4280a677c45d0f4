"""Error packages come from the service: what is well formed is read whole, anything else is refused in one way."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import RecordingCorrupt
from relive.model.failure import MOST_BYTES, Relation, Where, read_package

FRAME = {
    "file": "/srv/ledger.py",
    "line": 127,
    "function": "pay",
    "module": "ledger",
    "own": True,
    "source": {"first": 126, "lines": ["def pay(order):", "    return accounts[order]"]},
    "locals": {"order": "1386"},
    "locals_cut": 0,
}
PACKAGE: dict[str, Any] = {
    "version": 1,
    "type": "builtins.KeyError",
    "text": "1386",
    "fingerprint": "0123456789abcdef",
    "where": "handler",
    "wall_ns": 1,
    "mono_ns": 2,
    "pid": 7,
    "thread": "MainThread",
    "lane": 1,
    "request": {
        "number": 12,
        "server": "asgi",
        "method": "POST",
        "target": "/payments?x=1",
        "peer": ["127.0.0.1", 4711],
        "headers": [["host", "a"]],
        "query": {"x": "1", "y": ["1", "2"]},
        "path_params": {},
        "body": None,
        "body_cut": 0,
    },
    "chain": [
        {"type": "builtins.KeyError", "text": "1386", "relation": None, "frames": [FRAME]},
        {"type": "builtins.ValueError", "text": "", "relation": "context", "frames": []},
    ],
    "environment": {"HOME": "/"},
    "versions": {"python": "3.11.2", "packages": {"flask": "3.1"}},
    "revision": {"commit": "a" * 40, "dirty": None, "root": "/srv"},
    "argv": ["ledger.py"],
    "cwd": "/srv",
    "cut": [],
}


def changed(**parts: object) -> bytes:
    return json.dumps(PACKAGE | parts).encode()


def test_what_the_recorder_wrote_is_read_whole():
    package = read_package(changed())
    assert json.loads(package.model_dump_json()) == PACKAGE
    assert package.where is Where.HANDLER
    assert package.chain[1].relation is Relation.CONTEXT


def test_keys_of_a_later_recorder_are_passed_over():
    assert read_package(changed(mood="calm")) == read_package(changed())


def test_the_failing_frame_is_the_innermost_of_the_services_own():
    library = FRAME | {"own": False, "function": "get"}
    link = PACKAGE["chain"][0] | {"frames": [FRAME, library]}
    assert read_package(changed(chain=[link])).failing_frame().function == "pay"
    assert read_package(changed(chain=[link | {"frames": [library]}])).failing_frame().function == "get"
    assert read_package(changed(chain=[link | {"frames": []}])).failing_frame() is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        b"{}",
        b"\xff\xfe",
        changed(version=2),
        changed(pid="7"),
        changed(lane=-1),
        changed(wall_ns=1 << 70),
        changed(chain=[]),
        changed(where="elsewhere"),
        changed(fingerprint="../../../../etc"),
        changed(request={"number": 12}),
        changed(text=None),
        changed(text="a" * MOST_BYTES),
    ],
)
def test_anything_else_is_refused(data: bytes):
    with pytest.raises(RecordingCorrupt, match="error package"):
        read_package(data)


@given(st.integers(0, 2000), st.binary(max_size=40))
def test_cut_input_and_junk_only_ever_raise_the_declared_error(at: int, junk: bytes):
    data = changed()
    with contextlib.suppress(RecordingCorrupt):
        read_package(data[:at] + junk + data[at + len(junk) :])
