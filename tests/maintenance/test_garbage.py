"""The decision about garbage: in two phases, whatever the clock says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.maintenance.garbage import Thing, decide
from relive.maintenance.problems import Kind

things = st.builds(Thing, st.sampled_from([Kind.PACK, Kind.OBJECT]), st.sampled_from("abcdef"))
times = st.integers(0, 100)


@given(st.sets(things), st.dictionaries(things, times), times, times)
def test_each_piece_is_condemned_waits_or_goes_and_only_garbage_does(garbage, condemned, now, grace):
    found = decide(garbage, condemned, now_ns=now, grace_ns=grace)
    assert sorted(found.condemn + found.wait + found.delete) == sorted(garbage)
    if grace:
        assert set(found.delete) <= set(condemned)
        assert all(now - condemned[thing] >= grace for thing in found.delete)
        assert set(found.condemn).isdisjoint(condemned)
        assert set(found.wait) <= set(condemned)


@given(st.sets(things), times, st.integers(1, 100))
def test_what_stays_garbage_goes_when_the_grace_is_over_and_not_before(garbage, now, grace):
    first = decide(garbage, {}, now_ns=now, grace_ns=grace)
    assert set(first.condemn) == garbage
    condemned = dict.fromkeys(first.condemn, now)
    assert decide(garbage, condemned, now_ns=now + grace - 1, grace_ns=grace).delete == []
    assert set(decide(garbage, condemned, now_ns=now + grace, grace_ns=grace).delete) == garbage
    assert decide(garbage, condemned, now_ns=now - 50, grace_ns=grace).delete == []
