"""The table of docs/costs.md is made of what was measured, and goes where the page has its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from _cost_table import caption, cost_table, page_with_table  # noqa: E402


def row(side: str, answer: str, clients: int, **figures: float) -> dict[str, Any]:
    known = {"ratio": 0.9, "added us": 3.2, "p99 times": 1.1, "longest ms": 20.0, "cpu us": 2.4, "MB": 30.0}
    known |= {
        "a second": 7700.0,
        "p50 us": 500.0,
        "p99 us": 1500.0,
        "request KB": 1.25,
        "commit KB": float("nan"),
    }
    return {"service": "node", "side": side, "answer": answer, "clients": clients, **known, **figures}


def test_a_row_has_the_rates_of_all_cases_and_the_rest_of_the_usual_one() -> None:
    rows = [row("all", "small", count, ratio=0.7 + count / 100) for count in (1, 4, 32)]
    rows += [row("all", "large", 4, ratio=0.5), row("bare", "small", 4)]
    rows[1]["commit KB"] = 80.0
    assert cost_table(rows).splitlines()[2:] == [
        "| all, as it is by default | Node.js | 2 us | +3 us | 1.10 | 0.71 / 0.74 / 1.02 | - / 0.50 / - | 20 ms | 30 MB "
        "| 10.8 GB + 1.4 GB |"
    ]
    assert "Node.js 7,700 a second (p50 500 us, p99 1.5 ms)" in caption(rows, "1.0", 600)


def test_the_page_has_a_place_for_it() -> None:
    page = (ROOT / "docs" / "costs.md").read_text()
    once = page_with_table("new\n", page)
    assert "\nnew\n" in once
    assert page_with_table("new\n", once) == once
    with pytest.raises(SystemExit, match="no place"):
        page_with_table("new\n", "nothing")
