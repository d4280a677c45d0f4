"""Pages of commits: what fits, in order, each once, whatever comes and goes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.model.commit import CommitId, Manifest, Trigger
from relive.store import CommitQuery, Store, commitquery
from relive.store.index import CommitIndex
from relive.store.manifests import commit_id_of

from .builders import commit, make_manifest

NAMES = ("pay", "pay-web", "Mail")
COMMANDS = (["pay", "--now"], ["uvicorn", "app:app"], ["caf\udce9", "x"])
TRIGGERS = (Trigger.TIMER, Trigger.INCIDENT)


@dataclass(frozen=True)
class Fact:
    """A commit to be; its number makes its id."""

    number: int
    name: str
    command: int
    trigger: Trigger
    wall_ns: int

    def manifest(self) -> Manifest:
        one = make_manifest(name=self.name, wall_ns=self.wall_ns, capture=f"{self.number}")
        target = one.target.model_copy(update={"command": COMMANDS[self.command]})
        return one.model_copy(update={"trigger": self.trigger, "target": target})


facts = st.builds(
    Fact,
    number=st.integers(0, 10_000),
    name=st.sampled_from(NAMES),
    command=st.integers(0, len(COMMANDS) - 1),
    trigger=st.sampled_from(TRIGGERS),
    wall_ns=st.integers(0, 5),  # so that many are of the same time
)
some_facts = st.lists(facts, max_size=25, unique_by=lambda fact: fact.number)
queries = st.builds(
    CommitQuery,
    name=st.none() | st.sampled_from(NAMES),
    trigger=st.none() | st.sampled_from(TRIGGERS),
    since_wall_ns=st.none() | st.integers(0, 5),
    until_wall_ns=st.none() | st.integers(0, 6),
    tagged=st.none() | st.booleans(),
    prefix=st.none() | st.text("0123456789abcdef", max_size=2),
    text=st.none()
    | st.sampled_from(["", "pay", "PAY now", "uvicorn", "app:app mail", "caf\udce9", "nothing"]),
)


@contextmanager
def an_index(of: list[Fact]) -> Iterator[tuple[CommitIndex, dict[CommitId, Fact]]]:
    with closing(CommitIndex(Path(":memory:"))) as index:
        there: dict[CommitId, Fact] = {}
        for fact in of:
            add(index, there, fact)
        yield index, there


def add(index: CommitIndex, there: dict[CommitId, Fact], fact: Fact) -> CommitId:
    manifest = fact.manifest()
    commit_id = commit_id_of(manifest)
    index.add(commit_id, manifest, durable_us=None, size=1, new_bytes=0)
    there[commit_id] = fact
    return commit_id


def fits(query: CommitQuery, commit_id: CommitId, fact: Fact, tagged: set[CommitId]) -> bool:
    text = f"{fact.name} {' '.join(COMMANDS[fact.command])}".replace("\udce9", "?").casefold()
    words = (query.text or "").replace("\udce9", "?").casefold().split()
    return (
        query.name in (None, fact.name)
        and query.trigger in (None, fact.trigger)
        and (query.since_wall_ns is None or fact.wall_ns >= query.since_wall_ns)
        and (query.until_wall_ns is None or fact.wall_ns < query.until_wall_ns)
        and (query.tagged is None or query.tagged == (commit_id in tagged))
        and commit_id.startswith(query.prefix or "")
        and all(word in text for word in words)
    )


@pytest.mark.parametrize("most", [1, 32], ids=["walked", "merged"])
@settings(max_examples=40, deadline=None)
@given(of=some_facts, query=queries, limit=st.integers(1, 8), data=st.data())
def test_pages_hold_what_fits_newest_first(most, of, query, limit, data):
    """Both ways to search: texts merged, and walked through."""
    with pytest.MonkeyPatch.context() as patch, an_index(of) as (index, there):
        patch.setattr(commitquery, "_TEXTS_MOST", most)
        tagged = data.draw(st.sets(st.sampled_from(sorted(there)), max_size=3)) if there else set()
        wanted = [one for one in there if fits(query, one, there[one], tagged)]
        wanted.sort(key=lambda one: (there[one].wall_ns, one), reverse=True)
        found: list[CommitId] = []
        after = None
        while True:
            page = index.page(query, tagged, after, limit)
            assert len(page.items) <= limit
            found += [line.id for line in page.items]
            after = page.next
            if after is None:
                break
            assert len(page.items) == limit
        assert found == wanted


# Commits that come, and numbers of those that go.
changes = st.lists(facts | st.integers(0, 1000), max_size=4)


@settings(max_examples=80, deadline=None)
@given(of=some_facts, query=queries.filter(lambda query: query.tagged is None), data=st.data())
def test_what_is_there_all_the_time_comes_exactly_once(of, query, data):
    """GIVEN a list, WHEN commits come and go between its pages, THEN none is lost or doubled that was not touched."""
    with an_index(of) as (index, there):
        always, found, after = set(there), [], None
        while True:
            page = index.page(query, [], after, data.draw(st.integers(1, 4)))
            found += [line.id for line in page.items]
            after = page.next
            if after is None:
                break
            for change in data.draw(changes):
                if isinstance(change, Fact):
                    add(index, there, change)
                elif there:
                    gone = sorted(there)[change % len(there)]
                    index.remove(gone)
                    del there[gone]
                    always.discard(gone)
        assert len(found) == len(set(found)), "one came twice"
        wanted = {one for one in always if fits(query, one, there[one], set())}
        assert wanted <= set(found), "one is lost"


PLANS = [
    (CommitQuery(), "commits_by_time"),
    (CommitQuery(name="pay"), "commits_of_name"),
    (CommitQuery(trigger=Trigger.TIMER), "commits_of_trigger"),
    (
        CommitQuery(name="pay", trigger=Trigger.TIMER, since_wall_ns=1, until_wall_ns=9),
        "commits_of_name_and_trigger",
    ),
    (CommitQuery(text="pay"), "commits_of_text"),
]


@pytest.mark.parametrize(("query", "way"), PLANS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("deep", [False, True], ids=["first", "deep"])
def test_a_page_is_read_from_its_place_on_and_not_sorted(query, way, deep):
    """Else the time of a page grows with the number of commits."""
    with an_index([Fact(n, "pay", 0, Trigger.TIMER, n) for n in range(8)]) as (index, _):
        asked: list[str] = []
        after = index.page(query, [], None, 2).next
        index._database.set_trace_callback(asked.append)
        index.page(query, [], after if deep else None, 2)
        index._database.set_trace_callback(None)
        plan = [row[3] for row in index._database.execute(f"EXPLAIN QUERY PLAN {asked[-1]}")]
        (walk,) = [line for line in plan if way in line]
        assert "(taken_wall_ns,id)<(?,?)" in walk or not deep
        # Merging sorts the few places that each text gave, never what lies below them.
        assert way == "commits_of_text" or not any("TEMP B-TREE" in line for line in plan)


def test_tags_and_cursors_through_the_store(store):
    ids = [commit(store, capture=f"{n}", wall_ns=n).id for n in range(3)]
    store.tag("best", ids[0])
    store.tag("good", ids[2])
    assert [one.id for one in store.page(CommitQuery(tag="best")).items] == [ids[0]]
    assert store.page(CommitQuery(tag="other")).items == []
    assert [one.id for one in store.page(CommitQuery(tagged=True)).items] == [ids[2], ids[0]]
    assert [one.id for one in store.page(CommitQuery(tagged=False)).items] == [ids[1]]
    first = store.page(limit=2)
    assert [one.id for one in store.page(after=first.next).items] == [ids[0]]
    assert first.items == store.log(limit=2)
    with pytest.raises(UsageError):
        store.page(after="x")
    with pytest.raises(UsageError):
        store.page(limit=0)


@pytest.mark.parametrize("prefix", ["g", "'", "é", "A", "0" * 65])
def test_the_beginning_of_no_id_fits_nothing(store, prefix):
    commit(store)
    assert store.page(CommitQuery(prefix=prefix)).items == []


def test_commits_are_added_up_by_target(store: Store):
    for number, pause in enumerate((5, 1, 3, 9)):
        manifest = make_manifest(wall_ns=number, capture=f"{number}").model_copy(update={"pause_us": pause})
        newest = store.add(manifest, new_bytes=10 * number)
    other = store.add(make_manifest(name="mail", wall_ns=100), new_bytes=7)
    mail, pay = store.targets()
    assert (mail.name, mail.commits, mail.newest, mail.median_pause_us) == ("mail", 1, other.id, 1234)
    assert (pay.name, pay.commits, pay.newest, pay.newest_wall_ns, pay.oldest_wall_ns) == (
        "pay",
        4,
        newest.id,
        3,
        0,
    )
    assert (pay.bytes, pay.new_bytes, pay.median_pause_us) == (0, 60, 3)
    store.delete(other.id)
    assert [line.name for line in store.targets()] == ["pay"]
