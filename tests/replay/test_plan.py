"""What is sent again and when, decided from a made-up recording."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from relive.model.commit import Connection, Cursor, Manifest
from relive.recording.exchanges import Exchange, ExchangeEnd
from relive.replay.plan import ReplayPlan, make_plan
from store.builders import make_manifest

TAKEN = 1_000_000_000  # monotonic time of the commit
CURSOR = 100


def manifest(*inward_ports: int, outward_ports: tuple[int, ...] = (), settled: int | None = None) -> Manifest:
    connections = [
        Connection(local=("127.0.0.1", 80), peer=("127.0.0.1", port), inward=port in inward_ports)
        for port in (*inward_ports, *outward_ports)
    ]
    cursor = Cursor(sequence=CURSOR) if settled is None else Cursor(sequence=CURSOR, settled=settled)
    return make_manifest().model_copy(
        update={"taken_monotonic_ns": TAKEN, "cursor": cursor, "connections": connections}
    )


def exchange(number: int, started: int, ended: int | None = None, *, sent: bool = True, **facts) -> Exchange:
    """A request that began at event ``started``, a millisecond an event."""
    return Exchange(
        number=number,
        connection=facts.pop("connection", number),
        request_head=facts.pop("request_head", b"GET / HTTP/1.1\r\n\r\n"),
        started_seq=started,
        started_mono_ns=TAKEN + (started - CURSOR) * 1_000_000,
        started_wall_ns=0,
        sent_seq=started + 1 if sent else None,
        ended=facts.pop("how_it_ended", ExchangeEnd.ANSWERED if ended is not None else ExchangeEnd.OPEN),
        ended_seq=ended,
        **facts,
    )


def plan(begun=(), still_open=(), subject=None, *, commit: Manifest | None = None) -> ReplayPlan:
    return make_plan(commit or manifest(), list(begun), list(still_open), subject, TAKEN + 50_000_000)


def steps(made: ReplayPlan) -> list[tuple[int, bool]]:
    return [(step.exchange.number, step.continues) for step in made.steps]


def waits(made: ReplayPlan) -> dict[int, set[int]]:
    return {step.exchange.number: set(step.waits_for) for step in made.steps}


def test_requests_after_the_commit_are_sent_again_in_the_order_in_which_they_began():
    made = plan([exchange(3, 120, 130), exchange(2, 110, 140)], subject=3)
    assert steps(made) == [(2, False), (3, False)]
    assert made.subject == 3
    assert made.left_out == []


def test_a_request_whose_connection_is_in_the_commit_continues():
    open_one = exchange(1, 90, local_port=5000)
    assert steps(plan(still_open=[open_one], commit=manifest(5000))) == [(1, True)]


def test_a_stream_of_http2_cannot_be_joined_and_is_sent_again_only_where_it_is_judged():
    streams = [exchange(number, 90, local_port=7, request_head=b"GET / HTTP/2\r\n\r\n") for number in (1, 2)]
    made = plan(still_open=streams, subject=2, commit=manifest(7))
    assert (steps(made), made.left_out) == ([(2, False)], [1])


def test_one_that_waited_in_the_accept_queue_is_sent_again():
    """It had reached the service's port, but no process had accepted it, so the commit does not hold it."""
    open_one = exchange(1, 90, local_port=5000)
    assert steps(plan(still_open=[open_one], commit=manifest(6000))) == [(1, False)]


def test_an_outgoing_connection_with_the_same_port_is_no_clients():
    open_one = exchange(1, 90, local_port=5000)
    assert steps(plan(still_open=[open_one], commit=manifest(outward_ports=(5000,)))) == [(1, False)]


def test_one_that_was_half_sent_and_is_not_in_the_commit_is_left_out():
    made = plan(still_open=[exchange(1, 90, sent=False, local_port=5000)])
    assert steps(made) == []
    assert made.left_out == [1]


def test_what_cannot_be_sent_again_is_left_out():
    made = plan(
        [
            exchange(1, 110, 111, sent=False),
            exchange(2, 112, 113, request_cut=7),
            exchange(3, 114, 115, by_relive=True),
            exchange(4, 116, 117),
        ]
    )
    assert steps(made) == [(4, False)]
    assert made.left_out == [1, 2, 3]


def test_the_subject_is_never_left_out():
    """That it cannot be sent is for the caller to say."""
    assert steps(plan([exchange(1, 110, sent=False)], subject=1)) == [(1, False)]


def test_a_request_waits_for_those_that_had_ended_before_it_began():
    made = plan(
        [exchange(1, 110, 120), exchange(2, 115, 140), exchange(3, 130, 150), exchange(4, 145, 160)],
        subject=4,
    )
    assert waits(made) == {1: set(), 2: set(), 3: {1}, 4: {1, 2}}


def test_requests_that_overlapped_do_not_wait_for_each_other():
    made = plan([exchange(1, 110, 130), exchange(2, 120, 140)])
    assert waits(made) == {1: set(), 2: set()}


def test_a_continuing_request_is_waited_for_too():
    made = plan([exchange(2, 110, 115)], [exchange(1, 90, 105, local_port=5000)], commit=manifest(5000))
    assert waits(made) == {1: set(), 2: {1}}


def test_only_ends_that_the_service_made_are_waited_for():
    """A client that went away, or an end that is lost, says nothing about when the service was done."""
    ends = (
        ExchangeEnd.ABANDONED,
        ExchangeEnd.LOST,
        ExchangeEnd.UPGRADED,
        ExchangeEnd.BROKEN,
        ExchangeEnd.ANSWERED,
    )
    begun = [exchange(number, 110 + number, 120, how_it_ended=end) for number, end in enumerate(ends)]
    made = plan([*begun, exchange(9, 130, 140)])
    assert waits(made)[9] == {3, 4}


def test_times_count_from_the_commit_and_are_never_negative():
    made = plan([exchange(2, 110, 120)], [exchange(1, 90, local_port=5000)], commit=manifest(5000))
    assert [step.after_commit_ns for step in made.steps] == [0, 10_000_000]
    assert made.until_ns == 50_000_000


def test_a_failure_before_the_commit_is_at_once():
    assert make_plan(manifest(), [], [], None, TAKEN - 5).until_ns == 0


def test_one_that_was_answered_while_the_commit_was_taken_is_not_sent_again():
    """Its answer had left the service when that stood still; sending it again would do its work twice."""
    answered = exchange(1, 90, CURSOR + 1, local_port=5000)
    made = plan(still_open=[answered], commit=manifest(settled=CURSOR + 1))
    assert steps(made) == []
    assert made.left_out == []
    later = exchange(2, 90, CURSOR + 2, local_port=5001)
    assert steps(plan(still_open=[later], commit=manifest(settled=CURSOR + 1))) == [(2, False)]


def test_without_requests_there_is_nothing_to_send():
    made = plan()
    assert made.steps == []
    assert made.subject is None


spans = st.tuples(st.integers(101, 140), st.integers(1, 20))


@given(st.lists(spans, max_size=8))
def test_waiting_never_goes_in_circles_and_keeps_every_recorded_order(all_spans):
    begun = [exchange(number, start, start + length) for number, (start, length) in enumerate(all_spans)]
    made = plan(begun)
    position = {step.exchange.number: index for index, step in enumerate(made.steps)}
    for step in made.steps:
        assert all(position[other] < position[step.exchange.number] for other in step.waits_for)
    for one, other in itertools.permutations(begun, 2):
        assert (one.number in waits(made)[other.number]) == (one.ended_seq < other.started_seq)


def test_connections_on_which_nothing_was_being_served_had_all_their_answers():
    """GIVEN three connections in a commit: idle, being served, and answered while requests were held back
    WHEN it is planned
    THEN only the one being served may still get bytes of the commit.
    """
    served = exchange(1, 90, local_port=2)
    answered = exchange(2, 95, 105, local_port=3)
    made = plan([], [served, answered], commit=manifest(1, 2, 3, settled=110))
    assert made.answered == {1, 3}
