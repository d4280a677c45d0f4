"""``relive kept``: run a kept state with the code that is here."""

from __future__ import annotations

import typer

from relive.cli.params_options import from_params
from relive.cli.replay_cmd import outcome_words
from relive.cli.stacks import stack_lines
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.keeping import KeptParams, KeptRun, KeptRuns, run_kept
from relive.operations.trial_words import swapped_lines

__all__ = ["describe", "kept"]

_NOT_MET = 1  # exit status


@from_params(KeptParams, arguments=("file",))
def kept(params: KeptParams, as_json: AsJson = False) -> None:
    """Run what `relive keep` has kept: restore, give it the code that is here, send the request, compare

    Exit status: 0 the answer is as expected each time, 1 it is not; others where it could not be run.
    """
    terminal = Terminal(as_json=as_json)
    found = run_kept(load_settings(), params, terminal)
    terminal.answer(found, lambda: describe(found))
    raise typer.Exit(0 if found.met else _NOT_MET)


def describe(found: KeptRuns) -> str:
    """The result for people."""
    met = sum(one.reason is None for one in found.runs)
    expected = f"expected {found.expect}" if found.expect is not None else "nothing was expected"
    lines = [f"{found.name}: as expected {met} of {len(found.runs)} ({expected})"]
    lines.append(
        f"  request {found.request} from commit {found.commit[:10]}" + (", fetched" if found.pulled else "")
    )
    for one in found.runs:
        lines += _run_lines(one)
    return "\n".join(lines)


def _run_lines(one: KeptRun) -> list[str]:
    outcome = one.run.outcome
    lines = [f"  run {one.run.number}: {outcome_words(outcome) if outcome is not None else 'it did not run'}"]
    if one.reason is not None:
        lines.append(f"         {one.reason}")
    lines += [f"         {line}" for line in swapped_lines(one.swapped)]
    if one.reason is not None and outcome is not None and outcome.stack is not None:
        lines += ["", *stack_lines(outcome.stack)]
    return lines
