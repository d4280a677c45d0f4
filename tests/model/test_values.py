"""Incidents, outcomes and branches come back from JSON as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.model.branch import BranchFacts, Clock, Publication
from relive.model.incident import FailureKind, Incident, Sighting
from relive.model.outcome import End, Outcome, Replay, Run, Stack, Verdict, VerdictKind

from .strategies import commit_ids, numbers, ports, words

seconds = st.floats(0, 1e9)
outcomes = st.builds(
    Outcome,
    end=st.sampled_from(End),
    status=st.none() | st.integers(100, 599),
    headers=st.lists(st.tuples(words, words), max_size=2),
    body=words,
    seconds=st.none() | seconds,
    log=st.lists(words, max_size=2),
    stack=st.none()
    | st.builds(Stack, exception=words, frames=st.lists(st.tuples(words, numbers, words)), text=st.just([])),
)
runs = st.builds(
    Run,
    number=numbers,
    verdict=st.builds(Verdict, kind=st.sampled_from(VerdictKind), difference=st.none() | words),
    outcome=st.none() | outcomes,
    forwarded=numbers,
    restore_us=st.none() | numbers,
    seconds=seconds,
)
replays = st.builds(
    Replay,
    service=words,
    incident=st.none() | numbers,
    request=st.none() | numbers,
    commit=commit_ids,
    recorded=outcomes,
    runs=st.lists(runs, max_size=2),
)
sightings = st.builds(
    Sighting, kind=st.sampled_from(FailureKind), fingerprint=words, summary=words, seen_wall_ns=numbers
)
incidents = st.builds(
    Incident,
    number=numbers,
    service=words,
    life=words,
    sighting=sightings,
    before=st.none() | commit_ids,
    at=st.none() | commit_ids,
    last_seen_wall_ns=numbers,
    log_tail=st.lists(words, max_size=2),
)
branches = st.builds(
    BranchFacts,
    id=words,
    commit=commit_ids,
    name=words,
    init=numbers,
    init_started=numbers,
    root=numbers,
    clock=st.sampled_from(Clock),
    created_wall_ns=numbers,
    restore_us=numbers,
    publications=st.lists(
        st.builds(Publication, host=words, host_port=ports, port=ports, forwarder=numbers), max_size=2
    ),
)


@given(replays | incidents | branches)
def test_a_value_comes_back_from_its_json(value):
    assert type(value).model_validate_json(value.model_dump_json()) == value


def run(kind: VerdictKind) -> Run:
    return Run(
        number=1,
        verdict=Verdict(kind=kind),
        outcome=None,
        forwarded=0,
        restore_us=None,
        seconds=0.0,
    )


def test_only_runs_that_reproduced_it_are_counted():
    kinds = [VerdictKind.REPRODUCED, VerdictKind.DIVERGED, VerdictKind.REPRODUCED, VerdictKind.NOT_REPRODUCED]
    replay = Replay(
        service="pay",
        incident=1,
        request=2,
        commit="0" * 64,
        recorded=Outcome(end=End.ANSWERED, status=500),
        runs=[run(kind) for kind in kinds],
    )
    assert replay.reproduced == 2
