"""What ``relive diff`` tells, as one page whose layers fold: nothing in it is loaded from elsewhere, and no script runs."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from relive.page import page

__all__ = ["diff_page"]

_OPEN = 40  # lines of a layer that is open from the beginning
_STYLE = """
details { border-bottom: 1px solid var(--line); padding: .3rem 0; } summary { cursor: pointer; font-weight: 600; }
pre { background: var(--shade); padding: .5rem; overflow-x: auto; font-size: 13px; line-height: 1.4; }
"""
_WIDTH = 1100  # [px]


def diff_page(title: str, lines: Iterable[str]) -> str:
    """The file.

    Args:
        lines: as the terminal has them: what it is about, then layers, each behind an empty line and with its name first.
    """
    first, *layers = _layers(lines)
    body = [f"<h1>{html.escape(title)}</h1>", *(f"<p>{html.escape(line)}</p>" for line in first)]
    return page(title, [*body, *map(_folded, layers)], style=_STYLE, width=_WIDTH)


def _layers(lines: Iterable[str]) -> Iterator[list[str]]:
    layer: list[str] = []
    for line in lines:
        if line:
            layer.append(line)
        else:
            yield layer
            layer = []
    yield layer


def _folded(layer: list[str]) -> str:
    summary, *rest = map(html.escape, layer)
    is_open = " open" if 0 < len(rest) <= _OPEN else ""
    text = "\n".join(rest) or "nothing"
    return f"<details{is_open}><summary>{summary}</summary><pre>{text}</pre></details>"
