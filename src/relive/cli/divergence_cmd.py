"""``relive divergence``: where two runs part; and what ``relive diff`` tells of two runs."""

from __future__ import annotations

from collections.abc import Iterator

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.divergence import Divergence, DivergenceClass
from relive.operations.diverging import DivergenceParams, RunsDifference
from relive.operations.diverging import divergence as find_divergence

__all__ = ["divergence", "layers"]

_CLASSES = {
    DivergenceClass.TIME: "a time only",
    DivergenceClass.PAYLOAD: "payload",
    DivergenceClass.WAY: "another way taken",
}


@from_params(DivergenceParams, arguments=("before", "after"))
def divergence(params: DivergenceParams, as_json: AsJson = False) -> None:
    """Find the first event at which two runs differ, and of which class it is

    A run is a replay or a reproduction that was made; `relive replay` tells its number. `7.2` is its second branch, and
    `7.recorded` what was recorded. `relive diff run/7 run/8` shows all that differs.
    """
    terminal = Terminal(as_json=as_json)
    found = find_divergence(load_settings(), params, terminal)
    terminal.answer(found, lambda: "\n".join(_lines(found)))


def layers(found: RunsDifference) -> Iterator[str]:
    """All that differs, layer by layer."""
    yield from _lines(found)
    for name, changes in (("body", found.body), ("log", found.log), ("events", found.events)):
        yield ""
        yield f"{name}: {'differs' if changes else 'the same, as far as it is known of both'}"
        yield from (f"  {line}" for line in changes)
    yield ""
    if not found.is_measured:
        yield "system calls, allocations, figures: not measured of both (`relive replay --measure`)"
        return
    measured = {
        "system calls": found.system_calls,
        "allocations, bytes by line": found.allocations,
        "figures": found.figures,
    }
    for name, counts in measured.items():
        yield f"{name}: {f'{len(counts)} differ' if counts else 'the same'}"
        yield from (f"  {one.name}: {one.before or 0} -> {one.after or 0}" for one in counts)


def _lines(found: RunsDifference) -> Iterator[str]:
    yield f"{found.service}: {found.before} -> {found.after}"
    if found.ended is not None:
        yield f"  ended: {found.ended[0]} in the first, {found.ended[1]} in the second"
    if not found.is_known:
        yield "  What happened inside is not known of both, so nobody can tell where they part."
    elif not found.divergences:
        yield "  No event inside differs."
    for number, one in enumerate(found.divergences):
        yield from _divergence_lines(one, is_first=number == 0)


def _divergence_lines(one: Divergence, *, is_first: bool) -> Iterator[str]:
    begin = "first difference" if is_first else "then"
    yield f"  {begin}: event {one.place}, {_CLASSES[one.kind]}"
    yield f"    {one.words}"
