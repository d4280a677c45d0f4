"""``relive what-if``: something of a failure's recording changed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.incidents.report.shown import shorten
from relive.intervention.judging import counted, lacking_words
from relive.model.intervention import Changeable, Effect, Experiment, Tested
from relive.operations.interventions import WhatIfParams
from relive.operations.interventions import what_if as run_experiment

__all__ = ["tested_lines", "what_if"]

_STAYS, _CANNOT_TELL = 1, 10  # exit statuses
_WIDTH = 90
_READINGS = ("clock", "random")


@from_params(WhatIfParams, arguments=("incident",))
def what_if(params: WhatIfParams, as_json: AsJson = False) -> None:
    """Change something of a failure's recording and replay: does it still fail?

    An answer of a dependency, a row, a reading of a clock, requests left out or in another order; without a change it lists what
    can be changed. Exit status: 0 the failure goes away, 1 it stays, 10 it cannot be told, or was never asked for.
    """
    terminal = Terminal(as_json=as_json)
    result = run_experiment(load_settings(), params, terminal)
    terminal.answer(result, lambda: "\n".join(_describe(result)))
    raise typer.Exit(_status(result))


def _status(result: Experiment) -> int:
    effects = {one.effect for one in (result.tested, result.afresh) if one is not None}
    if effects <= {Effect.GOES_AWAY}:
        return 0
    return _STAYS if effects <= {Effect.STAYS, Effect.GOES_AWAY} else _CANNOT_TELL


def _describe(result: Experiment) -> Iterator[str]:
    yield f"{result.service}, incident {result.incident}: {result.failing}, from commit {result.commit[:10]}"
    if result.tested is not None:
        yield from tested_lines(result.tested, ())
    if result.afresh is not None:
        yield "In a process that was started anew, without the state:"
        yield from tested_lines(result.afresh, ())
    if result.tested is not None or result.afresh is not None:
        return
    yield "What can be changed (--answer CALL=VALUE, --without REQUEST, --without-message MESSAGE):"
    for alike in _alike(result.changeable):
        one, last = alike[0], alike[-1]
        indent = "  " if one.kind in ("request", "message") else "    "
        name = (
            f"message {one.name}"
            if one.kind == "message"
            else one.name
            if one is last
            else f"{one.name} to {last.name}"
        )
        results = shorten(one.result, _WIDTH)
        if one.result != last.result:
            results += f" to {shorten(last.result, _WIDTH)}"
        yield f"{indent}{name}  {shorten(one.what, _WIDTH)}  ->  {results}"
    if result.changeable_count > len(result.changeable):
        yield f"  and {result.changeable_count - len(result.changeable)} more"


def _alike(changeable: Sequence[Changeable]) -> Iterator[list[Changeable]]:
    """Readings of the same clock, or of chance, that follow each other are one line: a framework may make hundreds."""
    for (_, kind, _), found in groupby(changeable, key=lambda one: (one.request, one.kind, one.what)):
        alike = list(found)
        yield from [alike] if kind in _READINGS else ([one] for one in alike)


def tested_lines(tested: Tested, told: Sequence[str]) -> Iterator[str]:
    """Changes, and both runs, for people; ``told``: lines on what was missing that were told before."""
    for change in tested.changes:
        yield f"  {change.about}"
        yield f"    {change.recorded}  ->  {change.instead}"
        yield f"    {change.option}"
    yield f"  as recorded: {counted(tested.control)}"
    usual = lacking_words(tested.control)
    yield from (f"    {line}" for line in usual if line not in told)
    yield f"  changed: {counted(tested.runs)}"
    yield from (f"    {line}" for line in lacking_words(tested.runs) if line not in usual)
    left = f"; {tested.still_there:.0%} that it is still there" if tested.still_there is not None else ""
    why = f": {tested.why}" if tested.why is not None else left if tested.effect is Effect.GOES_AWAY else ""
    yield f"  {_WORDS[tested.effect]}{why}"
    if tested.enough is not None:
        alone = "fails" if tested.enough else "passes: others are needed, too, or their number"
        yield f"  with this alone of all since that commit: {alone}"


_WORDS = {
    Effect.GOES_AWAY: "the failure goes away",
    Effect.STAYS: "the failure stays",
    Effect.NOT_ASKED: "not asked",
    Effect.CANNOT_TELL: "cannot tell",
}
