"""Thinning a store by a schedule: what is pinned stays, also when it is pinned while another process thins."""

from __future__ import annotations

from pathlib import Path

import pytest

from incidents.test_incidents import sighting
from relive.incidents.incidents import Incidents
from relive.maintenance.retention import Retention
from relive.maintenance.thinning import Thinning
from relive.store import Store
from store.builders import SECOND, commit

HOUR = 3600 * SECOND


@pytest.fixture
def incidents(tmp_path: Path) -> Incidents:
    return Incidents(tmp_path / "incidents")


def test_all_goes_but_the_schedules_the_tagged_the_incidents_and_the_first(store, incidents):
    commits = [
        commit(store, capture=f"{n}", wall_ns=n * HOUR // 4 + 1, files={"f": b"%d" % n}).id for n in range(12)
    ]
    store.tag("best", commits[1])
    incidents.add("pay", "L1", sighting(), before=commits[2], at=None, log_end=None, log_tail=[])
    other = commit(store, name="mail", capture="m", wall_ns=1).id
    retention = Retention(newest=2, hours=2)
    thinning = Thinning(retention, incidents, set)
    expected = [commits[n] for n in (9, 8, 6, 5, 4, 3)]
    assert thinning.doomed(store, "pay") == expected
    assert len(store.log()) == 13
    assert thinning.thin(store, "pay") == expected
    assert thinning.thin(store, "pay") == []
    assert [line.id for line in store.log("pay")] == [commits[n] for n in (11, 10, 7, 2, 1, 0)]
    assert [line.id for line in store.log("mail")] == [other]


def test_the_commit_before_the_latest_time_of_an_incident_stays(store, incidents):
    """It is what `relive replay` brings back."""
    from relive.model.incident import Occurrence

    commits = [commit(store, capture=f"{n}", wall_ns=n).id for n in range(4)]
    incident = incidents.add("pay", "L1", sighting(), before=None, at=None, log_end=None, log_tail=[])
    latest = Occurrence(sighting=sighting(), before=commits[1])
    incidents.save(incident.model_copy(update={"latest": latest}))
    assert Thinning(Retention(1), incidents, set).thin(store, "pay") == [commits[2]]


def test_the_commit_of_a_living_branch_stays(store, incidents):
    commits = [commit(store, capture=f"{n}", wall_ns=n).id for n in range(4)]
    thinning = Thinning(Retention(1), incidents, lambda: {commits[1]})
    assert thinning.doomed(store, "pay") == [commits[2]]
    assert thinning.thin(store, "pay") == [commits[2]]


def test_nothing_is_dropped_while_a_commit_is_being_pinned(store, home, incidents):
    other = Store(home)
    with (
        store.nothing_dropped(),
        pytest.raises(BlockingIOError),
        other.internals.lock.held(shared=False, wait=False),
    ):
        pass
    with other.internals.lock.held(shared=False, wait=False):
        pass
    other.close()
