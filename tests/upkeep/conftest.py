"""A store in a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.store import Store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = Store(home)
    yield opened
    opened.close()
