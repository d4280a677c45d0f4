"""Fixtures: a small database in which an incident's queries give what they gave."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from relive.config import Settings
from relive.errors import NotFound, UsageError
from relive.incidents.incidents import Incidents
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Result, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend

if TYPE_CHECKING:  # sqlglot takes 0.3 s to import: only who makes a fixture waits for it
    from relive.fixture.building import EngineName
    from relive.fixture.checking import Checked
    from relive.fixture.recorded import RecordedStatement
    from relive.fixture.rules import Fixture

__all__ = ["FIXTURE", "Database", "FixtureMade", "FixtureParams", "QueryMade", "make_fixture"]


class Database(StrEnum):
    """For which database; PostgreSQL where SQLite does not do what it does."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class FixtureParams(Params):
    """What a fixture is made of: exactly one of ``incident``, ``rules`` and ``check``."""

    incident: int | None = Field(default=None, ge=1, description="Number of the incident")
    output: Path | None = Field(default=None, description="The directory to write the fixture to")
    engine: Database = Field(
        default=Database.SQLITE,
        description="For which database: sqlite, or postgresql where SQLite does not do what it does",
    )
    database: str | None = Field(default=None, description="Which database, where the request asked several")
    rules: Path | None = Field(
        default=None, description="Build it from this rule file instead of an incident"
    )
    check: Path | None = Field(default=None, description="Only check the fixture in this directory again")
    force: bool = Field(default=False, description="Replace a fixture that lies in the directory")


class QueryMade(Result):
    """A recorded statement in the fixture.

    Attributes:
        compared: it returned something that could be compared; reason: why it is not satisfied.
    """

    query: int
    sql: str
    satisfied: bool
    compared: bool
    reason: str | None


class FixtureMade(Result):
    """What was made.

    Attributes:
        tables: rows of each; states: numbers of the queries before which somebody else had changed something.
        files: that were written.
    """

    engine: Database
    satisfied: bool
    queries: list[QueryMade]
    tables: dict[str, int]
    states: list[int]
    files: list[str]


def make_fixture(settings: Settings, params: FixtureParams, progress: Progress) -> FixtureMade:
    """Make a fixture, and run every recorded query in it.

    Raises:
        UsageError: what is asked for cannot be meant; FixtureInvalid: a rule file cannot be read.
        IncidentUnknown, NotFound: there is no query of which one could be made.
    """
    if sum(one is not None for one in (params.incident, params.rules, params.check)) != 1:
        raise UsageError(
            "a fixture is made of one thing",
            remedy="name an incident, or give --build FILE, or --check DIR",
        )
    from relive.fixture.building import (
        EngineName,
        build,
        check_directory,
        checked_build,
        from_recorded,
        read_file,
    )

    engine = EngineName(params.engine.value)
    if params.check is not None:
        return _made(*check_directory(params.check), [])
    if params.output is None:
        raise UsageError("where the fixture belongs is not said", remedy="add -o DIR")
    if params.rules is not None:
        made = read_file(params.rules)
        checked = checked_build(made, engine)
        made = _with_verdict(made, checked)
    else:
        assert params.incident is not None
        recorded = _recorded(settings, params.incident, params.database, progress)
        made, checked = from_recorded(recorded, engine, source=f"incident {params.incident}")
    return _made(made, checked, engine, build(made, params.output, engine, force=params.force))


FIXTURE = Operation(
    "fixture",
    FixtureParams,
    FixtureMade,
    make_fixture,
    Faces(
        cli=("fixture",),
        rest=("POST /fixtures", "GET /fixtures/{task}/{name}"),
        mcp=Tool(
            Effect.ADDS,
            "Make a small database in which the incident's queries give the rows that they gave.",
            is_acting=True,
        ),
        only=(
            Only(
                ("output", "rules", "check", "force"),
                frozenset({Face.CLI, Face.MCP}),
                "they name files of the host; the server keeps what it makes",
            ),
        ),
    ),
)


def _with_verdict(made: Fixture, checked: list[Checked]) -> Fixture:
    """With what this check found in place of what an earlier one did."""
    from relive.fixture.rules import Unsatisfied

    found = [Unsatisfied(query=one.query, reason=one.reason) for one in checked if not one.satisfied]
    return made.model_copy(update={"unsatisfied": found})


def _recorded(
    settings: Settings, number: int, database: str | None, progress: Progress
) -> list[RecordedStatement]:
    """The statements of the incident's request, of one database."""
    from relive.fixture.fromevents import from_events
    from relive.incidents.report.detail import inside_of

    tend(settings, progress)
    events, notes = inside_of(settings, Incidents(settings.incidents).get(number))
    for note in notes:
        progress.status(note)
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


def _made(made: Fixture, checked: list[Checked], engine: EngineName, written: list[Path]) -> FixtureMade:
    statements = {one.query: one.sql for one in made.queries}
    return FixtureMade(
        engine=Database(engine.value),
        satisfied=all(one.satisfied for one in checked),
        queries=[
            QueryMade(
                query=one.query,
                sql=statements[one.query],
                satisfied=one.satisfied,
                compared=one.is_checked,
                reason=one.reason or None,
            )
            for one in checked
        ],
        tables={name: len(table.rows) for name, table in made.tables.items()},
        states=[state.at for state in made.states],
        files=[str(path) for path in written],
    )
