"""How pages look: the one style sheet, and HTML made of values.

What came out of a service is escaped here, or shown by a widget that takes plain text; Streamlit's labels are Markdown, for which
there is ``label``. Colours follow the theme that the reader chose in the page's menu.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape as escape_markup

from relive.incidents.report.shown import one_line
from relive.model.text import printable

__all__ = ["STYLE", "chip", "escape", "facts", "label", "lead", "table"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~:$^=&])")

STYLE = """<style>
.stApp { --rl-bad: light-dark(#b3372f, #f0847b); --rl-good: light-dark(#26774a, #6cc492); --rl-warn: light-dark(#8a5a10, #e0b25c);
  --rl-dim: light-dark(#5c6675, #9aa4b2); --rl-line: light-dark(#d5dae1, #394150); --rl-shade: light-dark(#f3f5f8, #1d232d);
  --rl-mark: light-dark(#fbe9e7, #432623); }
.stMainBlockContainer { max-width: 1320px; padding-top: 4.2rem; padding-bottom: 4rem; }
.rl-mono, .rl pre, .rl code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .82rem;
  line-height: 1.5; background: none; color: inherit; padding: 0; }
.rl { font-size: .92rem; line-height: 1.5; overflow-wrap: anywhere; }
.rl-dim { color: var(--rl-dim); } .rl-bad { color: var(--rl-bad); } .rl-good { color: var(--rl-good); }
.rl-warn { color: var(--rl-warn); }
.rl-lead { font: 600 1.35rem/1.35 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; color: var(--rl-bad); margin: 0; }
.rl-under { margin: .35rem 0 0; }
.rl-chip { display: inline-block; border: 1px solid var(--rl-line); border-radius: 1rem; padding: 0 .6rem; font-size: .78rem;
  line-height: 1.35rem; white-space: nowrap; color: var(--rl-dim); margin-right: .35rem; }
.rl-chip.rl-bad { color: var(--rl-bad); border-color: currentColor; }
.rl-chip.rl-good { color: var(--rl-good); border-color: currentColor; }
.rl-chip.rl-warn { color: var(--rl-warn); border-color: currentColor; }
.rl table { border-collapse: collapse; width: 100%; margin: 0; }
.rl th { text-align: left; font-weight: 600; color: var(--rl-dim); font-size: .8rem; border: none;
  border-bottom: 1px solid var(--rl-line); padding: .25rem .9rem .25rem 0; white-space: nowrap; }
.rl td { text-align: left; vertical-align: top; border: none;
  border-bottom: 1px solid var(--rl-line); padding: .28rem .9rem .28rem 0; }
.rl tr:last-child td { border-bottom: none; }
.rl .rl-number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.rl .rl-facts td:first-child { color: var(--rl-dim); white-space: nowrap; width: 1%; padding-right: 1.4rem; }
.rl .rl-locals td:first-child { color: var(--rl-dim); white-space: nowrap; width: 1%; padding-right: 1.2rem; }
.rl .rl-locals td { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .82rem; }
.rl details { border-bottom: 1px solid var(--rl-line); padding: .35rem 0; } .rl details:last-child { border-bottom: none; }
.rl summary { cursor: pointer; } .rl td details { border: none; padding: 0; }
.rl-frame { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1rem 1.6rem; padding: .5rem 0 .3rem; }
@media (max-width: 900px) { .rl-frame { grid-template-columns: minmax(0, 1fr); } }
.rl pre.rl-source { background: var(--rl-shade); border-radius: 6px; padding: .6rem 0; margin: 0; overflow-x: auto; }
.rl-source span { display: block; white-space: pre; padding: 0 .9rem; min-width: max-content; }
.rl-source .rl-ran { background: var(--rl-mark); box-shadow: inset 3px 0 var(--rl-bad); font-weight: 600; }
.rl pre.rl-text { background: var(--rl-shade); border-radius: 6px; padding: .6rem .9rem; margin: 0; white-space: pre-wrap;
  max-height: 26rem; overflow: auto; }
.rl-failed td { color: var(--rl-bad); } .rl-failed td .rl-dim { color: inherit; }
.rl-cells { display: flex; gap: .2rem 1rem; flex-wrap: wrap; align-items: baseline; }
.rl-cells > span:not(.rl-chip) { white-space: nowrap; min-width: var(--rl-cell, 7rem); } .rl-cells > .rl-wide { min-width: 14rem; }
.rl-cells > .rl-slim { min-width: 5.2rem; }
.st-key-debugger-source { flex-wrap: nowrap; } .st-key-debugger-source > div { min-width: 0; }
.st-key-debugger-gutter > div { height: 1.4rem; }
.st-key-debugger-gutter button { min-height: 0; height: 1.4rem; padding: 0 .6rem; width: 100%; justify-content: flex-end;
  border: none; }
.st-key-debugger-gutter p { font: .78rem/1.4rem ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.st-key-debugger-source .rl pre.rl-source { padding: 0; line-height: 1.4rem; }
.st-key-debugger-source .rl-source span { height: 1.4rem; }
.st-key-debugger-stack button, .st-key-debugger-stops button { min-height: 0; padding: .1rem 0; text-align: left;
  overflow-wrap: anywhere; }
div[data-testid="stPageLink"] a { padding-left: 0; padding-right: .4rem; background: none; }
div[class*="st-key-incident-"] { border-bottom: 1px solid var(--rl-line); padding-bottom: .55rem; }
</style>"""


def escape(text: object) -> str:
    """Text for any place of HTML; what would turn its direction is written out."""
    return escape_markup(printable(str(text)), quote=True)


def label(text: str) -> str:
    """Text for a place that takes Markdown, such as a button, in one line."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def lead(text: str) -> str:
    """The line that says what failed."""
    return f'<p class="rl-lead">{escape(text)}</p>'


def chip(text: str, tone: str = "") -> str:
    """A short fact in a frame; tone: "bad", "good", "warn" or none."""
    return f'<span class="rl-chip{" rl-" + tone if tone else ""}">{escape(text)}</span>'


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values; values are HTML."""
    lines = "".join(f"<tr><td>{escape(name)}</td><td>{value}</td></tr>" for name, value in rows)
    return f'<table class="rl-facts">{lines}</table>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    bad: Iterable[int] = (),
) -> str:
    """A table; cells are HTML.

    Args:
        numbers: columns, from 0, that are set to the right; bad: rows that stand out.
    """
    right, wrong = set(numbers), set(bad)

    def line(cells: Sequence[str], tag: str, about: str = "") -> str:
        shown = (
            f"<{tag}{' class=rl-number' if at in right else ''}>{cell}</{tag}>"
            for at, cell in enumerate(cells)
        )
        return f"<tr{about}>{''.join(shown)}</tr>"

    lines = "".join(
        line(row, "td", ' class="rl-failed"' if number in wrong else "") for number, row in enumerate(rows)
    )
    return f"<table>{line(head, 'th')}{lines}</table>"
