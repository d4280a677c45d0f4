"""``relive why``: what a failure is caused by, found by search."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.cli.what_if_cmd import tested_lines
from relive.config import load_settings
from relive.intervention.judging import counted, lacking_words
from relive.model.intervention import Explanation, Tested
from relive.operations.explaining import WhyParams
from relive.operations.explaining import why as run_search

__all__ = ["why"]

_CANNOT_TELL = 10  # exit status
_MOST_CHANGES = 3


@from_params(WhyParams, arguments=("incident",))
def why(params: WhyParams, as_json: AsJson = False) -> None:
    """Find what a failure is caused by: change its recording until it goes away

    Answers, rows and readings as in the last good request, and earlier requests left out, narrowed to the fewest that are
    needed; each cause with the runs as recorded and the runs with the change. Exit status: 0 found, 10 it cannot be told.
    """
    terminal = Terminal(as_json=as_json)
    result = run_search(load_settings(), params, terminal)
    terminal.answer(result, lambda: "\n".join(_describe(result)))
    raise typer.Exit(0 if result.causes else _CANNOT_TELL)


def _describe(result: Explanation) -> Iterator[str]:
    yield f"{result.service}, incident {result.incident}: {result.failing}"
    yield f"unchanged, from commit {result.commit[:10]}: {counted(result.control)}"
    yield from (f"  {line}" for line in lacking_words(result.control))
    if result.compared_with is not None:
        yield f"compared with {result.compared_with}, which went well"
    for one in result.tried:
        yield f"tried, from commit {one.commit[:10]}: {_short(one)}: {one.effect.value}{f', {one.why}' if one.why else ''}"
    for one in result.causes:
        yield ""
        yield f"cause, from commit {one.commit[:10]}:"
        yield from tested_lines(one, lacking_words(result.control))
    yield ""
    yield result.sentence
    if result.causes and result.why_not is not None:
        yield f"Beside that: {result.why_not}."
    yield f"{result.replays} replays (--most {result.most_replays}) in {result.seconds:.1f} s (--within {result.most_seconds:g})."


def _short(tested: Tested) -> str:
    options = [one.option for one in tested.changes[:_MOST_CHANGES]]
    more = len(tested.changes) - len(options)
    return ", ".join(options) + (f" and {more} more" if more else "")
