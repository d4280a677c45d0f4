"""The page on threats names a test for each row; each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "threat-model.md").read_text()


def named() -> list[tuple[str, str]]:
    """(file, test) of each; a name without a file is of the file before it in its paragraph or row."""
    found: list[tuple[str, str]] = []
    file = ""
    for path, test in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", PAGE):
        file = path or file
        if path or test:
            found.append((file, test))
    return found


@pytest.mark.parametrize(("file", "test"), named())
def test_each_is_there(file: str, test: str) -> None:
    text = (TESTS.parent / file).read_text()
    assert not test or f"def {test}(" in text


def test_a_row_without_one_says_so() -> None:
    rows = [
        line
        for line in PAGE.partition("\n## How it was tried\n")[0].splitlines()
        if line.startswith("| ") and not line.startswith(("| it may", "| what it"))
    ]
    assert len(rows) > 30
    assert [row for row in rows if not re.search(r"tests/|the same|\*pending\*|\.md\)|`::", row)] == []
