"""Pages of incidents: what fits, in order, each once, whoever writes meanwhile."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.incidents.incidents import IncidentOrder, IncidentQuery, Incidents
from relive.model.incident import FailureKind, Incident

from .test_incidents import sighting

SERVICES = ("pay", "mail")
KINDS = (FailureKind.ANSWER, FailureKind.HANG)
SUMMARIES = ("POST /pay?token=hunter2 was answered", "It hangs")


@dataclass(frozen=True)
class Fact:
    """An incident to be."""

    service: int
    kind: int
    summary: int
    first: int
    longer: int
    error: str | None

    def incident(self, number: int) -> Incident:
        trace = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', self.error or ""]
        seen = sighting(
            kind=KINDS[self.kind],
            summary=SUMMARIES[self.summary],
            fingerprint=f"{self.summary}",
            seen_wall_ns=self.first,
        )
        return Incident(
            number=number,
            service=SERVICES[self.service],
            life=f"L{self.service}",
            sighting=seen,
            before=None,
            at=None,
            last_seen_wall_ns=self.first + self.longer,
            log_tail=trace if self.error else [],
        )


two = st.integers(0, 1)
facts = st.builds(
    Fact,
    two,
    two,
    two,
    st.integers(0, 4),
    st.integers(0, 4),
    st.none() | st.sampled_from(["KeyError: 'EUR'", "Boo"]),
)
queries = st.builds(
    IncidentQuery,
    service=st.none() | st.sampled_from(SERVICES),
    life=st.none() | st.just("L1"),
    kind=st.none() | st.sampled_from(KINDS),
    fingerprint=st.none() | st.just("1"),
    text=st.none()
    | st.sampled_from(["", "keyerror", "it HANGS", "/pay", "answered eur", "hunter2", "nothing"]),
    since_wall_ns=st.none() | st.integers(0, 8),
    until_wall_ns=st.none() | st.integers(0, 8),
    order=st.sampled_from(IncidentOrder),
)


def put(directory: Path, one: Incident) -> None:
    """As another program would, which knows nothing of the index."""
    fresh = directory / "fresh"
    fresh.write_text(one.model_dump_json())
    fresh.replace(directory / f"{one.number}.json")


def fits(query: IncidentQuery, one: Incident) -> bool:
    text = f"{one.sighting.summary} {one.log_tail[-1:]}".replace("hunter2", "").casefold()
    return (
        query.service in (None, one.service)
        and query.life in (None, one.life)
        and query.kind in (None, one.sighting.kind)
        and query.fingerprint in (None, one.sighting.fingerprint)
        and all(word in text for word in (query.text or "").casefold().split())
        and (query.since_wall_ns is None or one.last_seen_wall_ns >= query.since_wall_ns)
        and (query.until_wall_ns is None or one.sighting.seen_wall_ns < query.until_wall_ns)
    )


changes = st.lists(
    st.tuples(st.just("come"), facts) | st.tuples(st.sampled_from(["go", "again"]), st.integers(0, 100)),
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(of=st.lists(facts, max_size=9), query=queries, limit=st.integers(1, 4), data=st.data())
def test_what_is_there_all_the_time_comes_exactly_once(of, query, limit, data):
    """GIVEN incidents, WHEN some come, go and are seen again between the pages, THEN none else is lost or doubled.

    By the time last seen, one that is seen again may be passed over, as ``IncidentOrder`` says.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        incidents = Incidents(path)
        there = {number: fact.incident(number) for number, fact in enumerate(of, 1)}
        for one in there.values():
            put(path, one)
        always, found, after, highest = set(there), [], None, len(there)
        untouched = True
        while True:
            page = incidents.page(query, after=after, limit=limit)
            found += [one.number for one in page.items]
            after = page.next
            if after is None:
                break
            for what, which in data.draw(changes):
                untouched = False
                if isinstance(which, Fact):
                    highest += 1
                    there[highest] = which.incident(highest)
                    put(path, there[highest])
                elif there:
                    number = sorted(there)[which % len(there)]
                    if what == "go":
                        (path / f"{number}.json").unlink()
                        del there[number]
                        always.discard(number)
                    else:
                        seen = {"times": 2, "last_seen_wall_ns": there[number].last_seen_wall_ns + 1}
                        there[number] = there[number].model_copy(update=seen)
                        put(path, there[number])
                        if query.order is IncidentOrder.LAST_SEEN or query.since_wall_ns is not None:
                            always.discard(number)
        assert len(found) == len(set(found)), "one came twice"
        fit = [one for one in there.values() if fits(query, one)]
        assert {one.number for one in fit} & always <= set(found), "one is lost"
        if untouched:
            by_number = query.order is IncidentOrder.NUMBER
            fit.sort(key=lambda one: (0 if by_number else one.last_seen_wall_ns, one.number), reverse=True)
            assert found == [one.number for one in fit]


def test_a_line_tells_what_the_file_says(tmp_path):
    put(tmp_path, Fact(0, 1, 0, 3, 1, "KeyError: 'EUR'").incident(5))
    (line,) = Incidents(tmp_path).page().items
    assert (line.number, line.service, line.life, line.kind) == (5, "pay", "L0", "hang")
    assert (line.exception, line.summary) == ("KeyError: 'EUR'", SUMMARIES[0])
    assert (line.seen_wall_ns, line.last_seen_wall_ns, line.times) == (3, 4, 1)


def test_a_cursor_of_the_other_order_is_refused(tmp_path):
    for number in (1, 2):
        put(tmp_path, Fact(0, 0, 0, 1, 1, None).incident(number))
    incidents = Incidents(tmp_path)
    after = incidents.page(limit=1).next
    with pytest.raises(UsageError, match="no cursor of this list"):
        incidents.page(IncidentQuery(order=IncidentOrder.LAST_SEEN), after=after)


def test_where_there_is_no_incident_nothing_is_made(tmp_path):
    incidents = Incidents(tmp_path / "incidents")
    assert incidents.page().items == []
    assert incidents.pinned() == set()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_later_relive_is_no_line(tmp_path):
    one = json.loads(Fact(0, 0, 0, 1, 1, None).incident(1).model_dump_json())
    one["sighting"]["kind"] = "a kind that is not known yet"
    (tmp_path / "1.json").write_text(json.dumps(one))
    assert Incidents(tmp_path).page().items == []
