"""``relive fixture``: a small database in which an incident's queries give what they gave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relive.agent.launch import tend_capsules
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import NotFound, UsageError
from relive.store.incidents import Incidents

if TYPE_CHECKING:  # sqlglot takes 0.3 s to import: only who makes a fixture waits for it
    from relive.config import Settings
    from relive.fixture.building import EngineName
    from relive.fixture.checking import Checked
    from relive.fixture.recorded import Recorded
    from relive.fixture.rules import Fixture

__all__ = ["fixture"]

_UNSATISFIED = 1  # exit status
_ENGINES = ("sqlite", "postgresql")


def fixture(
    incident: Annotated[int | None, typer.Argument(help="Number of the incident", show_default=False)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The directory to write the fixture to")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="For which database: sqlite, or postgresql where SQLite does not do what it does"),
    ] = "sqlite",
    database: Annotated[
        str | None, typer.Option(help="Which database, where the request asked several", show_default=False)
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--build", help="Build it from this rule file instead of an incident")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--check", help="Only check the fixture in this directory again")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a fixture that lies in the directory")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a small database in which an incident's queries give the rows that they gave

    The recorded queries and rows become a rule file that can be read and edited, and a SQLite database (or a script for
    PostgreSQL) with exactly the tables and rows they need. Every recorded query is then run in it, in their order, writes
    included, and what comes back is compared with what was recorded.

    Exit status: 0 when every query is satisfied, 1 when one is not: which, and why, stands in the answer and in the rule file.
    """
    terminal = Terminal(as_json=as_json)
    if sum(one is not None for one in (incident, rules, directory)) != 1:
        raise UsageError(
            "a fixture is made of one thing",
            remedy="name an incident, or give --build FILE, or --check DIR",
        )
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}", remedy=f"give one of {', '.join(_ENGINES)}")
    from relive.fixture.building import (
        EngineName,
        build,
        check_directory,
        checked_build,
        from_recorded,
        read_file,
    )

    chosen = EngineName(engine)
    written: list[Path] = []
    if directory is not None:
        made, checked, chosen = check_directory(directory)
    elif output is None:
        raise UsageError("where the fixture belongs is not said", remedy="add -o DIR")
    else:
        if rules is not None:
            made = read_file(rules)
            checked = checked_build(made, chosen)
            made = _with_verdict(made, checked)
        else:
            assert incident is not None
            recorded = _recorded(load_settings(), incident, database, terminal)
            made, checked = from_recorded(recorded, chosen, source=f"incident {incident}")
        written = build(made, output, chosen, force=force)
    _tell(terminal, made, checked, chosen, written)
    raise typer.Exit(_UNSATISFIED if any(not one.satisfied for one in checked) else 0)


def _with_verdict(made: Fixture, checked: list[Checked]) -> Fixture:
    """With what this check found in place of what an earlier one did."""
    from relive.fixture.rules import Unsatisfied

    found = [Unsatisfied(query=one.query, reason=one.reason) for one in checked if not one.satisfied]
    return made.model_copy(update={"unsatisfied": found})


def _recorded(settings: Settings, number: int, database: str | None, terminal: Terminal) -> list[Recorded]:
    """The statements of the incident's request, of one database."""
    from relive.analyse.account import inside_of
    from relive.fixture.fromevents import from_events

    tend_capsules(settings)
    events, notes = inside_of(settings, Incidents(settings.incidents).get(number))
    for note in notes:
        terminal.hint(note)
    own = [event for event in events if event.request]
    recorded = from_events(own) or from_events(events)
    if not recorded:
        raise NotFound(
            f"no query of incident {number} was recorded",
            cause="only queries of Python services are recorded, and only while their request is",
            remedy=f"see what is known of it: relive show incident/{number}",
        )
    names = list(dict.fromkeys(one.database for one in recorded))
    if database is None and len(names) > 1:
        raise UsageError(
            f"the request asked {len(names)} databases",
            cause=", ".join(names),
            remedy="choose one with --database",
        )
    chosen = [one for one in recorded if database in (None, one.database)]
    if not chosen:
        raise NotFound(f"no query asked database {database!r}", cause=f"there are {', '.join(names)}")
    return chosen


def _tell(
    terminal: Terminal, made: Fixture, checked: list[Checked], engine: EngineName, written: list[Path]
) -> None:
    failed = [one for one in checked if not one.satisfied]
    compared = [one for one in checked if one.is_checked]
    if terminal.as_json:
        terminal.answer(_value(made, checked, engine, written))
    else:
        rows = [[str(one.query), _short(_sql(made, one.query)), _verdict(one)] for one in compared]
        bad = {at for at, one in enumerate(compared) if not one.satisfied}
        terminal.table(
            compared,
            ["query", "statement", "result"],
            rows,
            "No query returned anything to compare.",
            bad=bad,
        )
        sizes = [f"{name} {len(table.rows)}" for name, table in made.tables.items()]
        terminal.answer(None, f"\nRows: {', '.join(sizes) or 'none'}")
        if made.states:
            moments = ", ".join(str(state.at) for state in made.states)
            terminal.answer(None, f"Changed by somebody else before query: {moments}")
    for path in written:
        terminal.status(f"Wrote {path}.")
    done = len(compared) - len(failed)
    terminal.status(f"{done} of {len(compared)} queries give in {engine.value} what they gave.")
    if failed and engine.value == "sqlite" and any("SQLite" in one.reason for one in failed):
        terminal.hint("SQLite does not know what some of them ask for; --engine postgresql does.")


def _value(
    made: Fixture, checked: list[Checked], engine: EngineName, written: list[Path]
) -> dict[str, object]:
    return {
        "engine": engine.value,
        "satisfied": all(one.satisfied for one in checked),
        "queries": [
            {
                "query": one.query,
                "sql": _sql(made, one.query),
                "satisfied": one.satisfied,
                "compared": one.is_checked,
                "reason": one.reason or None,
            }
            for one in checked
        ],
        "tables": {name: len(table.rows) for name, table in made.tables.items()},
        "states": [state.at for state in made.states],
        "files": [str(path) for path in written],
    }


def _sql(made: Fixture, number: int) -> str:
    return next(one.sql for one in made.queries if one.query == number)


def _short(text: str) -> str:
    from relive.analyse.shown import one_line, shorten

    return shorten(one_line(" ".join(text.split())), 70)


def _verdict(one: Checked) -> str:
    return "satisfied" if one.satisfied else one.reason
