"""An agent ends with its directory, and with nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from relive.agent.control import removal


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_LOOK", 0.001)


async def begun() -> None:
    """A task that was just made has come to its second await."""
    for _ in range(5):
        await asyncio.sleep(0)


async def ends(state: Path) -> list[int]:
    """With what it ended; it is given up when it has looked some hundred times."""
    ended: list[int] = []
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(removal.end_with(state, ended.append), 0.5)
    return ended


def test_it_ends_when_its_directory_is_removed(tmp_path: Path) -> None:
    made = tmp_path / "life"
    made.mkdir()
    state = made / "state.json"
    state.touch()

    async def remove() -> list[int]:
        ending = asyncio.ensure_future(ended())
        await begun()
        shutil.rmtree(made)
        return await ending

    async def ended() -> list[int]:
        found: list[int] = []
        await asyncio.wait_for(removal.end_with(state, found.append), 60)
        return found

    assert asyncio.run(remove()) == [1]


@pytest.mark.parametrize("moved", [False, True])
def test_it_goes_on_while_its_directory_is_somewhere(tmp_path: Path, moved: bool) -> None:
    made = tmp_path / "life"
    made.mkdir()
    state = made / "state.json"
    state.touch()

    async def look() -> list[int]:
        ending = asyncio.ensure_future(ends(state))
        await begun()
        if moved:
            made.rename(tmp_path / "other")
        return await ending

    assert asyncio.run(look()) == []
