"""The gate and the holds end by themselves, without a proxy around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.proxies import gate as _gate
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter


class Keeper:
    """Stands for a connection: writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.done = asyncio.Event()

    def freeze(self) -> None:
        self.told.append("freeze")

    def thaw(self) -> None:
        self.told.append("thaw")
        self.done.set()

    def release(self, request: int) -> None:
        self.told.append(f"release {request}")
        self.done.set()

    def shut(self) -> None:
        self.told.append("shut")


@pytest.fixture
def writer(tmp_path: Path) -> RecordingWriter:
    return RecordingWriter(tmp_path)


def notes(tmp_path: Path) -> list[str]:
    return [e.fields["text"] for e in Recording(tmp_path).events() if e.kind is EventKind.NOTE]


def run(act: Callable[[asyncio.AbstractEventLoop, Keeper], None]) -> list[str]:
    async def main() -> list[str]:
        keeper = Keeper()
        act(asyncio.get_running_loop(), keeper)
        await asyncio.wait_for(keeper.done.wait(), 5)
        return keeper.told

    return asyncio.run(main())


def test_a_gate_that_nobody_opens_opens_by_itself(
    writer: RecordingWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_gate, "CLOSED_SECONDS", 0.01)

    def act(loop: asyncio.AbstractEventLoop, keeper: Keeper) -> None:
        gate = _gate.Gate(loop, writer)
        gate.keepers[1] = keeper
        gate.close(owner=act)
        stands = gate.clock()
        assert gate.clock() == stands  # the clock of the service stands still meanwhile

    assert run(act) == ["freeze", "thaw"]
    assert notes(tmp_path) == ["the gate opened by itself after 0.01 s"]
    writer.close()


def test_a_request_held_too_long_goes_on_by_itself(
    writer: RecordingWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_gate, "HELD_SECONDS", 0.01)

    def act(loop: asyncio.AbstractEventLoop, keeper: Keeper) -> None:
        _gate.Holds(loop, writer).hold(7, keeper)

    assert run(act) == ["release 7"]
    assert "without the agent's word" in notes(tmp_path)[0]
    writer.close()
