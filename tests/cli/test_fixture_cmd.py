"""``relive fixture``: what it says, what it writes, how it ends."""

from __future__ import annotations

import json

import pytest

from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import Incidents
from relive.model.incident import FailureKind, Sighting
from relive.recording.events import Event, EventKind

NAMES = ["select name from users where id = ?", [7], ["name"], [["bob"]]]
COUNT = ["select count(*) from users", None, ["n"], [[100_000]]]

MADE = """\
query  statement                            result
1      select name from users where id = ?  satisfied
2      select count(*) from users           an aggregate over 100000 rows: no small set of rows has it

Rows: users 1
! Wrote made/fixture.sqlite.
! Wrote made/fixture.yaml.
! 1 of 2 queries give in sqlite what they gave.
= 1"""


def event(number, query, database="shop.db"):
    statement, parameters, columns, rows = query
    asked = {"system": "sqlite", "database": database, "statement": statement}
    asked |= {} if parameters is None else {"parameters": parameters}
    answer = {"rowcount": -1, "columns": columns, "rows": rows}
    fields = {"pid": 5, "own_seq": number, "lane": 1, "asked": asked, "answer": answer}
    return Event(number, 10 * number, 10 * number, EventKind.QUERY, 0, 1, b"", fields)


@pytest.fixture
def incident(home):
    def add(*events):
        sighting = Sighting(kind=FailureKind.EXCEPTION, fingerprint="f", summary="it failed", seen_wall_ns=5)
        made = Incidents(home / "incidents").add(
            "pay", "L1", sighting, before=None, at=None, log_end=0, log_tail=[]
        )
        store_evidence(home / "incidents", made.number, Evidence(None, list(events)))
        return str(made.number)

    return add


def test_a_fixture_of_which_one_query_is_not_satisfied(relive, incident):
    number = incident(event(1, NAMES), event(2, COUNT))
    assert str(relive("fixture", number, "-o", "made")) == MADE


def test_in_json(relive, incident):
    said = relive("fixture", incident(event(1, NAMES)), "-o", "made", "--json")
    assert said.status == 0
    assert json.loads(said.out) == {
        "engine": "sqlite",
        "satisfied": True,
        "queries": [{"query": 1, "sql": NAMES[0], "satisfied": True, "compared": True, "reason": None}],
        "tables": {"users": 1},
        "states": [],
        "files": ["made/fixture.sqlite", "made/fixture.yaml"],
    }


def test_built_from_an_edited_file_and_checked(relive, incident, tmp_path):
    relive("fixture", incident(event(1, NAMES)), "-o", "made")
    rules = tmp_path / "made" / "fixture.yaml"
    rules.write_text(rules.read_text().replace("name: bob", "name: eve"))
    assert relive("fixture", "--build", str(rules), "-o", "edited").status == 1
    assert "no row ('bob',); there is ('eve',)" in (tmp_path / "edited" / "fixture.yaml").read_text()
    assert relive("fixture", "--check", "made").status == 0  # the database there is as it was
    assert relive("fixture", "--build", str(rules), "-o", "made").status == 2
    assert relive("fixture", "--build", str(rules), "-o", "made", "--force").status == 1
    assert relive("fixture", "--check", "made").status == 1


def test_one_database_of_two(relive, incident):
    number = incident(event(1, NAMES), event(2, NAMES, "other.db"))
    said = relive("fixture", number, "-o", "made")
    assert said.status == 2
    assert "Cause: shop.db, other.db" in said.err
    assert relive("fixture", number, "-o", "made", "--database", "other.db").status == 0
    assert relive("fixture", number, "-o", "made", "--database", "third.db").status == 3


def test_an_incident_without_queries(relive, incident):
    said = relive("fixture", incident(), "-o", "made")
    assert said.status == 3
    assert "no query of incident 1 was recorded" in said.err


@pytest.mark.parametrize(
    "words",
    [[], ["1"], ["1", "--check", "x"], ["--build", "x.yaml"]],
)
def test_what_cannot_be_meant(relive, incident, words):
    incident(event(1, NAMES))
    said = relive("fixture", *words)
    assert said.status == 2
    assert "Remedy: " in said.err


def test_an_engine_that_is_none(relive):
    said = relive("fixture", "1", "-o", "made", "--engine", "oracle")
    assert said.status == 2
    assert "postgresql" in said.err


def test_an_incident_that_is_none(relive):
    assert relive("fixture", "4", "-o", "made").status == 3
