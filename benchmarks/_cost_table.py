"""The table of docs/costs.md, made of what ``whole.py`` has measured.

A row is a service with one thing turned on. Its throughput is given for each number of connections, with small answers and with
those of 1 MiB; the rest is of small answers and 4 connections.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["CONNECTIONS", "caption", "cost_table", "page_with_table"]

CONNECTIONS = (1, 4, 32)
_USUAL = ("small", 4)
_BEGIN, _END = "<!-- written by benchmarks/whole.py --table -->", "<!-- end of what it has written -->"
_SIDES = {
    "commits": "a commit each 5 s",
    "requests": "requests recorded",
    "proxy": "requests recorded by a proxy (`--upstream`)",
    "egress": "what it asks of others recorded",
    "through": "the same, in its way (`--record-egress`)",
    "inside": "inside Python",
    "all": "all, as it is by default",
}
_SERVICES = {
    "fastapi": "FastAPI",
    "flask": "Flask",
    "node": "Node.js",
    "postgresql": "PostgreSQL",
    "asking": "Node.js that asks another",
}
_HEAD = """
| turned on | service | CPU | p50 | p99 times | throughput, 1 / 4 / 32 | 1 MB, 1 / 4 / 32 | longest answer | memory | disk a day |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
""".lstrip()
_REQUESTS_A_DAY, _COMMITS_A_DAY = 100 * 86_400, 86_400 // 5


def cost_table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of ``whole.py``, as Markdown."""
    found = {(row["side"], row["service"], row["answer"], row["clients"]): row for row in rows}
    lines = []
    for side, title in _SIDES.items():
        shown = title
        for service, name in _SERVICES.items():
            usual = found.get((side, service, *_USUAL))
            if usual is None:
                continue
            rates = [
                " / ".join(_ratio(found.get((side, service, answer, count))) for count in CONNECTIONS)
                for answer in ("small", "large")
            ]
            lines.append(f"| {' | '.join([shown, name, *_of(usual), *rates, *_rest(usual)])} |\n")
            shown = ""
    return _HEAD + "".join(lines)


def _of(row: dict[str, Any]) -> list[str]:
    return [f"{max(0.0, row['cpu us']):.0f} us", f"{row['added us']:+.0f} us", f"{row['p99 times']:.2f}"]


def _rest(row: dict[str, Any]) -> list[str]:
    return [f"{row['longest ms']:.0f} ms", f"{row['MB']:.0f} MB", _disk(row)]


def _ratio(row: dict[str, Any] | None) -> str:
    return f"{row['ratio']:.2f}" if row is not None else "-"


def _disk(row: dict[str, Any]) -> str:
    parts = [row["request KB"] * _REQUESTS_A_DAY] if row["request KB"] > 0.01 else []
    if not math.isnan(row["commit KB"]):
        parts.append(row["commit KB"] * _COMMITS_A_DAY)
    return " + ".join(f"{part / 1e6:.1f} GB" for part in parts) or "-"


def caption(rows: Sequence[dict[str, Any]], load: str, seconds: float) -> str:
    """When, where and how fast the bare services were; ``load``: of the machine, ``seconds``: that it took."""
    bare = {
        row["service"]: row
        for row in rows
        if (row["side"], row["answer"], row["clients"]) == ("bare", *_USUAL)
    }
    rates = ", ".join(
        f"{_SERVICES[name]} {row['a second']:,.0f} a second (p50 {row['p50 us']:.0f} us, p99 {row['p99 us'] / 1e3:.1f} ms)"
        for name, row in bare.items()
    )
    day = time.strftime("%d %B %Y").lstrip("0")
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"(`benchmarks/whole.py --table docs/costs.md`, {seconds / 60:.0f} minutes, {day}, Linux {kernel}, "
        f"load {load}. "
        f"Bare, small answers, 4 connections: {rates}.)\n"
    )


def page_with_table(text: str, page: str) -> str:
    """A page whose part between the two marks is ``text`` now. Ends the program where it has no marks."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"error: the page has no place for the table: {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n\n{text}\n{_END}{after}"
