"""``relive logpoint``: a log line after the fact."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.stepping import Logged, LoggedHit, LoggedRun
from relive.model.text import printable
from relive.operations.logpoints import LogpointParams
from relive.operations.logpoints import logpoint as run_logpoint

__all__ = ["logpoint"]

_NEVER = 1  # exit status


@from_params(LogpointParams, arguments=("incident", "at", "expression"))
def logpoint(params: LogpointParams, as_json: AsJson = False) -> None:
    """Values of expressions at a line, in replays of a failure: a log line after the fact

    The service is not touched, and nothing is deployed: the recorded request runs again in a sealed branch of the very state, and
    each time it comes to the line the expressions are evaluated just before that. For Python. Exit status: 0 it came there, 1 it
    never did.
    """
    terminal = Terminal(as_json=as_json)
    result = run_logpoint(load_settings(), params, terminal)
    terminal.answer(result, lambda: printable("\n".join(_describe(result))))
    raise typer.Exit(0 if any(run.hits for run in result.runs) else _NEVER)


def _describe(result: Logged) -> Iterator[str]:
    yield f"{result.service}, incident {result.incident}: {result.failing}, from commit {result.commit[:10]}"
    when = f" when {result.when}" if result.when is not None else ""
    yield f"{result.file}:{result.line}  {result.source}{when}"
    if not result.has_requests:
        yield "Nothing was recorded inside the service, so it is not known which request a line ran for."
    for run in result.runs:
        yield from _run(run, is_only=len(result.runs) == 1)


def _run(run: LoggedRun, *, is_only: bool) -> Iterator[str]:
    yield f"{'replay' if is_only else f'replay {run.number}'}: {run.result}{_never(run)}"
    for hit in run.hits:
        yield f"  {_where(hit)}: {', '.join(_values(hit))}"
    if run.is_cut:
        yield "  and more, which were not kept (--most)"
    if run.trouble is not None:
        yield f"  {run.trouble}"


def _where(hit: LoggedHit) -> str:
    request = f"request {hit.request} " if hit.request is not None else ""
    return f"{request}@{hit.position} {hit.function}"


def _values(hit: LoggedHit) -> Iterator[str]:
    for one in hit.values:
        name = one.expression if one.expression is not None else "the condition"
        yield f"{name} {'raises ' if one.raised else '= '}{one.text}"


def _never(run: LoggedRun) -> str:
    return ", never came there" if not run.hits and run.trouble is None and run.fails is not None else ""
