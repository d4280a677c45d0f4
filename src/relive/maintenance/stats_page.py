"""A page that shows what a store holds: one HTML file with everything in it, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import math
from itertools import accumulate

from relive.maintenance.stats import StoreStats
from relive.maintenance.usage import KINDS
from relive.model.quantities import size, when
from relive.page import page, table

__all__ = ["stats_page"]

_WIDTH, _HEIGHT = 760, 300  # [px] of the plot
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 16, 28  # [px] around it
_MOST_POINTS = 400
_TICK = 16  # from one line of the scale to the next: 1 MiB, 16 MiB, 256 MiB
_MOST_ROWS = 20
_COLOURS = {
    "full": "#3266a8",
    "xor": "#4ea3a0",
    "index": "#8a6fb0",
    "file": "#d08a3c",
    "dead": "#b8524f",
    "unknown": "#6d6d6d",
    "list": "#9aa4ae",
}


def stats_page(stats: StoreStats, *, where: str) -> str:
    """The page.

    Args:
        where: the store's directory, for the title.
    """
    ratio = f"{stats.logical / stats.stored:.1f} times less" if stats.stored < stats.logical else "no less"
    body = [
        f"<h1>Store {html.escape(where)}</h1>",
        f"<p>{len(stats.commits)} commits bring back {size(stats.logical)} and take {size(stats.stored)}: {ratio}.</p>",
        "<h2>What takes the room</h2>",
        _bar(stats),
        table(
            ["what", "bytes", "share"],
            [
                [
                    f'<span class="swatch" style="background:{_COLOURS[kind]}"></span>{html.escape(KINDS[kind])}',
                    size(count),
                    f"{100 * count / max(1, stats.stored):.1f} %",
                ]
                for kind, count in stats.dominance.items()
                if count
            ],
        ),
        "<h2>As commits were taken</h2>",
        _plot(stats),
        '<p class="dim">Added up over the commits that are kept, from the oldest to the newest, on a logarithmic scale.</p>',
        "<h2>Services</h2>",
        table(
            ["service", "commits", "bring back", "stored", "a commit adds"],
            [
                [
                    html.escape(one.name),
                    str(one.commits),
                    size(one.logical),
                    size(one.stored),
                    size(one.a_commit),
                ]
                for one in stats.services
            ],
        ),
        "<h2>Commits that would free most</h2>",
        table(
            ["commit", "taken", "bring back", "new then", "freed if dropped"],
            [
                [
                    f"<code>{one.id[:10]}</code> {html.escape(one.name)}",
                    when(one.taken_wall_ns),
                    size(one.logical),
                    size(one.new),
                    size(one.alone),
                ]
                for one in sorted(stats.commits, key=lambda one: -one.alone)[:_MOST_ROWS]
            ],
        ),
    ]
    return page(f"Store {where}", body)


def _bar(stats: StoreStats) -> str:
    """One bar, cut as ``stored`` is."""
    total, at, pieces = max(1, sum(stats.dominance.values())), 0.0, []
    for kind, count in stats.dominance.items():
        width = _WIDTH * count / total
        pieces.append(
            f'<rect x="{at:.1f}" y="0" width="{width:.1f}" height="22" fill="{_COLOURS[kind]}">'
            f"<title>{html.escape(KINDS[kind])}</title></rect>"
        )
        at += width
    return (
        f'<svg viewBox="0 0 {_WIDTH} 22" role="img" aria-label="what takes the room">{"".join(pieces)}</svg>'
    )


def _plot(stats: StoreStats) -> str:
    """Bytes brought back and bytes stored, added up over the commits."""
    times = [one.taken_wall_ns for one in stats.commits]
    lines = {
        "brought back": (list(accumulate(one.logical for one in stats.commits)), "#d08a3c"),
        "stored": (list(accumulate(one.new for one in stats.commits)), "#3266a8"),
    }
    values = [value for line, _ in lines.values() for value in line if value > 0]
    if len(times) < 2 or not values:
        return '<p class="dim">There is nothing to plot before the second commit.</p>'
    low, high = math.floor(math.log(min(values), _TICK)), math.ceil(math.log(max(values) + 1, _TICK))

    def across(wall_ns: int) -> float:
        span = max(1, times[-1] - times[0])
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (wall_ns - times[0]) / span

    def up(value: int) -> float:
        share = (math.log(max(value, _TICK**low), _TICK) - low) / max(1, high - low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

    pieces = []
    for power in range(low, high + 1):
        y = up(_TICK**power)
        pieces.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        pieces.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{size(_TICK**power)}</text>')
    for anchor, time in (("start", times[0]), ("end", times[-1])):
        label = html.escape(when(time))
        pieces.append(f'<text x="{across(time):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
    step = max(1, len(times) // _MOST_POINTS)
    shown = sorted({*range(0, len(times), step), len(times) - 1})
    for name, (line, colour) in lines.items():
        points = " ".join(f"{across(times[at]):.1f},{up(line[at]):.1f}" for at in shown)
        pieces.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = up(line[-1]) - 7
        pieces.append(
            f'<text x="{_WIDTH - _RIGHT}" y="{y:.1f}" text-anchor="end" style="fill:{colour}">'
            f"{name} {size(line[-1])}</text>"
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="bytes over time">{"".join(pieces)}</svg>'
