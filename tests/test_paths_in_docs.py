"""Pages for contributors name files of the project; each of them is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "words.md",
    *sorted((ROOT / "docs" / "contributing").glob("*.md")),
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
# Between backquotes: a path from the project's top. Names in capitals stand for something that the reader makes.
_NAMED = re.compile(r"`((?:src|tests|native|docs|scripts|benchmarks|examples)/[\w./-]*)(?:::\w+)?`")
_PLACEHOLDER = re.compile(r"NAME|ROOM|NOUN|FILE|ISSUE")


def paths(text: str) -> list[str]:
    return [path for path in _NAMED.findall(text) if not _PLACEHOLDER.search(path)]


def test_paths_are_found_and_placeholders_are_not() -> None:
    text = "`src/relive/errors.py`, `tests/real/test_x.py::test_y`, `tests/test_NAME.py`, src/relive/none.py"
    assert paths(text) == ["src/relive/errors.py", "tests/real/test_x.py"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_is_there(page: Path) -> None:
    missing = [path for path in paths(page.read_text()) if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_its_examples_import_is_there(page: Path) -> None:
    """An example that is followed literally must not fail at its first line."""
    asked = [
        (module, name.strip())
        for module, names in re.findall(
            r"^ *from (relive[\w.]*) import ([\w, ]+)$", page.read_text(), re.MULTILINE
        )
        for name in names.split(",")
        if not _PLACEHOLDER.search(module)
    ]
    assert [
        f"{module}.{name}" for module, name in asked if not hasattr(importlib.import_module(module), name)
    ] == []


def test_the_table_of_rooms_is_the_tree() -> None:
    """Every package directly below ``relive`` has its row in architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "src" / "relive").glob("*/__init__.py")}
    assert [room for room in sorted(rooms) if not re.search(rf"^\| .*`{room}`", page, re.MULTILINE)] == []
