"""A page that Relive makes: one HTML file with everything in it, no scripts, nothing loaded from elsewhere, both colour schemes."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["page", "table"]

# A second wall behind escaping: where a browser sees markup that came out of a service, it neither runs nor loads it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #5c6675; --line: #d5dae1; --ground: #ffffff; --bad: #b3372f;
  --shade: #f3f5f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #9aa4b2; --line: #394150; --ground: #14181f;
  --bad: #f0847b; --shade: #1d232d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .2rem .8rem .2rem 0;
  border-bottom: 1px solid var(--line); } th { color: var(--dim); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { fill: var(--dim); font-size: 12px; }
.axis { stroke: var(--line); } .dim { color: var(--dim); }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .5em; }
"""


def page(title: str, body: Iterable[str], *, style: str = "", width: int = 800) -> str:
    """The file.

    Args:
        title: plain text.
        body: HTML; what came from elsewhere was escaped by the caller.
        style: rules beside those that all pages have.
        width: [px] at most.
    """
    head = (
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}body {{ max-width: {width}px; }}\n{style}</style></head><body>"
    )
    return "\n".join(["<!DOCTYPE html>", head, *body, "</body></html>"]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] | None = None) -> str:
    """A table; cells are HTML. Columns ``numbers`` are set to the right; without, all but the first."""
    right = set(range(1, len(head)) if numbers is None else numbers)

    def line(cells: Sequence[str], tag: str) -> str:
        shown = (
            f"<{tag}{' class=number' if at in right else ''}>{cell}</{tag}>" for at, cell in enumerate(cells)
        )
        return f"<tr>{''.join(shown)}</tr>"

    return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"
