"""``relive fixture``: a small database in which an incident's queries give what they gave."""

from __future__ import annotations

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.incidents.report.shown import one_line, shorten
from relive.operations.fixtures import Database, FixtureMade, FixtureParams, QueryMade, make_fixture

__all__ = ["fixture"]

_UNSATISFIED = 1  # exit status


@from_params(
    FixtureParams,
    arguments=("incident",),
    words={
        "output": ("--output", "-o"),
        "rules": ("--build",),
        "check": ("--check",),
        "force": ("--force", "-f"),
    },
)
def fixture(params: FixtureParams, as_json: AsJson = False) -> None:
    """Make a small database in which an incident's queries give the rows that they gave

    The recorded queries and rows become a rule file that can be read and edited, and a SQLite database (or a script for
    PostgreSQL) with exactly the tables and rows they need. Every recorded query is then run in it, in their order, writes
    included, and what comes back is compared with what was recorded.

    Exit status: 0 when every query is satisfied, 1 when one is not: which, and why, stands in the answer and in the rule file.
    """
    terminal = Terminal(as_json=as_json)
    made = make_fixture(load_settings(), params, terminal)
    _report(terminal, made)
    raise typer.Exit(0 if made.satisfied else _UNSATISFIED)


def _report(terminal: Terminal, made: FixtureMade) -> None:
    compared = [one for one in made.queries if one.compared]
    failed = [one for one in made.queries if not one.satisfied]
    if terminal.as_json:
        terminal.answer(made)
    else:
        rows = [[str(one.query), _short(one.sql), _verdict(one)] for one in compared]
        bad = {at for at, one in enumerate(compared) if not one.satisfied}
        terminal.table(
            compared,
            ["query", "statement", "result"],
            rows,
            "No query returned anything to compare.",
            bad=bad,
        )
        sizes = [f"{name} {rows_of}" for name, rows_of in made.tables.items()]
        terminal.answer(None, f"\nRows: {', '.join(sizes) or 'none'}")
        if made.states:
            moments = ", ".join(map(str, made.states))
            terminal.answer(None, f"Changed by somebody else before query: {moments}")
    for path in made.files:
        terminal.status(f"Wrote {path}.")
    done = len(compared) - len(failed)
    terminal.status(f"{done} of {len(compared)} queries give in {made.engine.value} what they gave.")
    if failed and made.engine is Database.SQLITE and any("SQLite" in (one.reason or "") for one in failed):
        terminal.hint("SQLite does not know what some of them ask for; --engine postgresql does.")


def _short(text: str) -> str:
    return shorten(one_line(" ".join(text.split())), 70)


def _verdict(one: QueryMade) -> str:
    return "satisfied" if one.satisfied else one.reason or "not satisfied"
