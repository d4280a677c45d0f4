"""The gate of a proxy in the way: what it is given time for before a commit says which answers had left the service."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from relive.agent.control.proxy_client import ProxyGate
from relive.model.commit import Cursor, OpenRequest

from .test_packet_gate import Link, loop

__all__ = ["loop"]  # a fixture


@pytest.mark.parametrize(
    ("at_once", "is_open", "asked"), [(True, True, 2), (True, False, 0), (False, True, 0)]
)
def test_a_proxy_that_may_still_read_an_answer_is_waited_for(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, at_once: bool, is_open: bool, asked: int
) -> None:
    link = Link(status={"op": "status"})
    requests = [OpenRequest(request=4, local_port=4000)] if is_open else []
    gate = ProxyGate(link, loop, tmp_path)  # type: ignore[arg-type]
    settled = gate.settle(Cursor(sequence=7, open_requests=requests), at_once=at_once)
    assert [op for op, _ in link.asked] == ["status"] * asked
    assert settled.settled == 7  # nothing is recorded here


def test_one_that_says_nothing_is_not_waited_for_long(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    link = Link()
    gate = ProxyGate(link, loop, tmp_path)  # type: ignore[arg-type]
    requests = [OpenRequest(request=4, local_port=4000)]
    assert gate.settle(Cursor(sequence=7, open_requests=requests), at_once=True).settled == 7
    assert len(link.asked) == 2


def test_neither_is_the_loop_when_that_is_busy(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    """The service stands still meanwhile."""
    gate = ProxyGate(Link(status={"op": "status"}), loop, tmp_path)  # type: ignore[arg-type]
    requests = [OpenRequest(request=4, local_port=4000)]
    is_settled = threading.Event()
    loop.call_soon_threadsafe(is_settled.wait)
    began = time.monotonic()
    gate.settle(Cursor(sequence=7, open_requests=requests), at_once=True)
    took = time.monotonic() - began
    is_settled.set()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(
        5
    )  # what was asked for is over before the loop is
    assert took < 1
