"""A commit of a service that is recorded beside the way: its place is known when that runs again, or nothing is said of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.agent.control import packet_gate
from relive.agent.control.packet_gate import PacketGate
from relive.model.commit import Cursor, OpenRequest

CLOSED = {"op": "closed", "cursor": 3, "connections": []}
OPENED = {"op": "opened", "cursor": 9, "connections": [{"connection": 1, "local_port": 4000, "request": 5}]}


class Link:
    """A recorder that answers as it is told."""

    is_open = True

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, op: str, _limit: float, /, **fields: Any) -> dict[str, Any]:
        self.asked.append((op, fields))
        if op not in self.answers:
            raise TimeoutError
        return dict(self.answers[op])


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


def gate(link: Link, loop: asyncio.AbstractEventLoop) -> PacketGate:
    return PacketGate(link, loop, 8000)  # type: ignore[arg-type]


def test_the_place_comes_from_the_images(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(("10.0.0.9", 4000), "10.0.0.1", 77, 88)]
    monkeypatch.setattr(packet_gate, "read_crossed", lambda _images, _port: found)
    link = Link(close=CLOSED, open=OPENED)
    made = gate(link, loop)
    cursor = made.close()
    assert cursor is not None
    placed = made.open("name", made.settle(cursor), tmp_path)
    assert placed == Cursor(sequence=9, settled=9, open_requests=[OpenRequest(request=5, local_port=4000)])
    (_, began), (_, ended) = link.asked
    assert ended["crossed"] == [["10.0.0.9", 4000, "10.0.0.1", 77, 88]]
    assert ended["commit"] == "name"
    assert began["at"] <= ended["at"]


@pytest.mark.parametrize(
    "link",
    [Link(), Link(close={"op": "error"}), Link(close=CLOSED), Link(close=CLOSED, open={"op": "error"})],
    ids=["silent", "refuses", "silent then", "refuses then"],
)
def test_where_the_recorder_does_not_know_nothing_is_said(
    link: Link, loop: asyncio.AbstractEventLoop
) -> None:
    made = gate(link, loop)
    cursor = made.close()
    if cursor is not None:
        cursor = made.settle(cursor)
    assert made.open("name", cursor, None) is None


def test_a_commit_that_failed_or_whose_images_cannot_be_read_has_no_place(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    for name in (None, "name"):
        link = Link(close=CLOSED, open=OPENED)
        made = gate(link, loop)
        cursor = made.close()
        assert cursor is not None
        assert made.open(name, made.settle(cursor), tmp_path) is None
        assert link.asked[-1] == ("open", {"commit": None})


def test_without_a_recorder_there_is_no_place(loop: asyncio.AbstractEventLoop) -> None:
    made = PacketGate(None, loop, 8000)
    assert made.close() is None
    assert made.open("name", None, None) is None
