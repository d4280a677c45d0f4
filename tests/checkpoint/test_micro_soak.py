"""10,000 commits on top of others, each compared with all memory as it was read in the pause by somebody else. With the real CRIU.

    pytest -m soak tests/checkpoint/test_micro_soak.py      (or a part: -k asyncio)

A commit that was taken whole is compared as well, and not counted. Of memory_moves most are: see test_micro_commits, for_long.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_micro_commits import PROGRAMS, Taking, Told
from .test_micro_trees import TakingTrees

LIVES, COMMITS, TRIES_EACH = 67, 50, 4
OBJECTS = ("count", "objects", "map", "unmap", "give back", "free", "move", "write", "break")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def take_all(taking: Taking, process: Told, words: tuple[str, ...], seed: int) -> None:
    """Take ``COMMITS`` on top; a word is done before each, where there are any."""
    choose, on_top, tries = random.Random(seed), 0, 0
    try:
        taking.base(process.pid)
        while on_top < COMMITS and tries < COMMITS * TRIES_EACH:
            tries += 1
            taking.micro._refusals = 0
            if words:
                process.ask(choose.choice(words))
            on_top += taking.commit(process.pid)
            assert any(taking.frozen.values()), "nothing was compared"
        assert process.process.poll() is None
    finally:
        process.end()
    assert on_top == COMMITS, taking.reasons[-3:]


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = Taking(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def taking_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TakingTrees]:
    found = TakingTrees(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_service_of_asyncio(taking: Taking, seed: int) -> None:
    take_all(taking, Told(sys.executable, PROGRAMS / "micro_asyncio.py", str(seed)), (), seed)


@pytest.mark.parametrize("seed", range(LIVES))
def test_objects_of_python(taking: Taking, tmp_path: Path, seed: int) -> None:
    take_all(taking, Told(sys.executable, PROGRAMS / "micro_traps.py", tmp_path / "written"), OBJECTS, seed)


@pytest.mark.parametrize("seed", range(LIVES))
def test_processes_that_share_memory(taking_trees: TakingTrees, tmp_path: Path, seed: int) -> None:
    take_all(
        taking_trees, Told(sys.executable, PROGRAMS / "micro_tree.py", tmp_path / "log"), ("count",), seed
    )
