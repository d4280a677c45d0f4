"""``relive reproduce``: does it fail again in a fresh process?"""

from __future__ import annotations

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.outcome import verdict_words
from relive.model.quantities import duration
from relive.model.reproduction import Attempt, Raised, Reproduction, ReproductionKind
from relive.operations.reproductions import ReproduceParams, reproduction_status
from relive.operations.reproductions import reproduce as run_reproduction

__all__ = ["describe", "reproduce"]

_LOG_LINES = 12
_NOT = 1  # the exit status of what never came again


@from_params(ReproduceParams, arguments=("incident", "command"))
def reproduce(params: ReproduceParams, as_json: AsJson = False) -> None:
    """Without any commit, from what was recorded: start the service afresh, send the request, judge

    Exit status: 0 reproduced every time, 1 never, 10 diverged, or the same answer came and its cause was not seen, or reproduced
    sometimes only, 6 it could not be started.
    """
    terminal = Terminal(as_json=as_json)
    result = run_reproduction(load_settings(), params, terminal)
    terminal.answer(result, lambda: describe(result))
    status = reproduction_status(result)
    if status == _NOT and result.tree.is_recorded:
        # What did not happen to a request cannot be judged by every replay.
        looks = result.request is None
        way = (
            "`relive show {0}` tells what brings that back"
            if looks
            else "`relive replay {0}` brings that back, from a commit"
        )
        terminal.hint(f"the same code did not fail without the state it had; {way.format(result.incident)}")
    raise typer.Exit(status)


def describe(result: Reproduction) -> str:
    """The result for people."""
    lines = [
        _headline(result),
        f"  started:  {' '.join(result.command)}",
        f"  in:       {result.directory}" + (f", as {result.user}" if result.user else ""),
        f"  files:    {result.tree.words}",
        f"  request:  {result.request or 'none, the program is only run'}",
        f"  recorded: {_recorded_words(result)}",
    ]
    if result.placeholders:
        names = ", ".join(result.placeholders)
        lines.append(f"  secrets:  placeholders stand in {names}; --env and --env-file supply values")
    lines += [f"  note:     {note}" for note in result.notes]
    lines += [line for attempt in result.attempts for line in _attempt_lines(attempt)]
    failed = [one for one in result.attempts if one.kind is ReproductionKind.COULD_NOT_START and one.log]
    if failed:
        lines += ["", "Its standard error:", *(f"  {line}" for line in failed[0].log[-_LOG_LINES:])]
    return "\n".join(lines)


def _headline(result: Reproduction) -> str:
    count = f"reproduced {result.reproduced} of {len(result.attempts)}"
    first = next((one.kind for one in result.attempts if one.kind is not ReproductionKind.REPRODUCED), None)
    words = count if first is None else f"{verdict_words(first)}, {count}"
    return f"incident {result.incident} of {result.service}: {words} in a fresh process"


def _recorded_words(result: Reproduction) -> str:
    status = _status_words(result.recorded_status)
    if result.recorded is not None:
        return _raised_words(result.recorded) + status
    return result.recorded_end or "no answer"


def _raised_words(raised: Raised) -> str:
    text = f": {raised.text.splitlines()[0]}" if raised.text.strip() else ""
    place = f" at {raised.file}:{raised.line} in {raised.function}" if raised.file else ""
    return f"{raised.type.removeprefix('builtins.')}{text}{place}"


def _status_words(status: int | None) -> str:
    return f", answered with status {status}" if status is not None else ""


def _attempt_lines(attempt: Attempt) -> list[str]:
    line = f"  attempt {attempt.number}: {verdict_words(attempt.kind)}"
    if attempt.raised is not None:
        line += f": {_raised_words(attempt.raised)}"
    line += f", {attempt.ended}" if attempt.ended is not None else _status_words(attempt.status)
    if attempt.ready_seconds is not None:
        line += f"; ready after {duration(attempt.ready_seconds * 1e6)}"
    if attempt.packets_left is not None:
        line += f"; {attempt.packets_left} packets left"
        line += f", {attempt.refused} refused" if attempt.refused else ""
    found = [line, *(f"         missing: {text}" for text in attempt.missing)]
    if attempt.difference:
        found.append(f"         first difference: {attempt.difference}")
    found += [f"         cause: {text}" for text in attempt.evidence]
    found += [f"         not seen: {text}" for text in attempt.unseen if text not in attempt.missing]
    if attempt.played:
        found.append(f"         answered: {attempt.played}")
    return found + [f"         note: {note}" for note in attempt.notes]
