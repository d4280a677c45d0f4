"""Commits are dropped by hand only where nothing holds them."""

from __future__ import annotations

import json

import pytest

from relive.incidents.incidents import Incidents
from relive.model.incident import FailureKind, Sighting
from relive.store import Store
from store.builders import commit


@pytest.fixture
def store(home):
    opened = Store(home / "store")
    yield opened
    opened.close()


def test_a_commit_is_gone_and_the_others_are_not(relive, store):
    one, other = commit(store, capture="1"), commit(store, capture="2")
    said = relive("delete", one.id[:12], "--json")
    assert (said.status, json.loads(said.out)) == (0, [{"id": one.id}])
    assert [line.id for line in store.log()] == [other.id]
    assert relive("delete", one.id).status == 3


def test_what_is_tagged_stays_and_the_tag_is_named(relive, store):
    one = commit(store)
    store.tag("release", one.id)
    said = relive("delete", one.id)
    assert said.status == 2
    assert "tagged release" in said.err
    store.untag("release")
    assert relive("delete", one.id).status == 0


def test_what_an_incident_needs_stays(relive, home, store):
    one = commit(store)
    sighting = Sighting(kind=FailureKind.EXIT, fingerprint="x", summary="it ended", seen_wall_ns=1)
    Incidents(home / "incidents").add(
        "pay", "L1", sighting, before=one.id, at=None, log_end=None, log_tail=[]
    )
    said = relive("delete", one.id)
    assert said.status == 2
    assert "incident" in said.err
    assert [line.id for line in store.log()] == [one.id]
