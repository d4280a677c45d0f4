"""``relive who-wrote``: the line and the request that last set a value."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.stepping import Place, ValueWrite, Written
from relive.model.text import printable
from relive.operations.who_wrote import WhoWroteParams
from relive.operations.who_wrote import who_wrote as run_search

__all__ = ["who_wrote"]

_CANNOT_TELL = 10  # exit status


@from_params(WhoWroteParams, arguments=("incident", "expression"))
def who_wrote(params: WhoWroteParams, as_json: AsJson = False) -> None:
    """The line and the request that last set a value before a failure

    The recorded requests run again in a sealed branch, and the value is looked at before each line of the service's own code;
    where nothing wrote it since the commit, from commits ever further back. For Python. Exit status: 0 found, 10 it cannot be told.
    """
    terminal = Terminal(as_json=as_json)
    result = run_search(load_settings(), params, terminal)
    terminal.answer(result, lambda: printable("\n".join(_describe(result))))
    raise typer.Exit(0 if result.writes and result.writes[-1].place is not None else _CANNOT_TELL)


def _describe(result: Written) -> Iterator[str]:
    yield f"{result.service}, incident {result.incident}: {result.failing}; the replay: {result.result}"
    yield f"at commit {result.commit[:10]}: {result.expression} = {result.first}"
    if result.writes_left_out:
        yield f"  {result.writes_left_out} writes before these (--last)"
    for one in result.writes:
        yield from _write(one)
    if result.trouble is not None:
        yield result.trouble
    yield ""
    yield result.sentence


def _write(write: ValueWrite) -> Iterator[str]:
    where = _place(write.place) if write.place is not None else "no line of the service's own code"
    yield f"  {where}"
    if write.place is not None:
        yield f"      {write.place.source}"
    yield f"      {write.before}  ->  {write.after}"
    # A thread that serves nobody mostly waits in a line that it came to long before.
    for other in write.others:
        if other.request is not None:
            yield f"      or, at the same moment: {_place(other)}"


def _place(place: Place) -> str:
    about = f"{place.about} " if place.about is not None else ""
    return f"{about}@{place.position} {place.file}:{place.line} {place.function}"
