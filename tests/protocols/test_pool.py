"""Which recorded call answers a question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relive.protocols.call import Call, CallEnd
from relive.protocols.pool import Pool, PoolMatch
from relive.recording.events import EventKind

REDIS = EventKind.REDIS_COMMAND


def call(number: int, command: list[Any], dialogue: int = 1) -> Call:
    return Call(
        kind=REDIS,
        asked={"command": command},
        answer={"value": number},
        end=CallEnd.ANSWERED,
        dialogue=dialogue,
        index=number,
        to=("10.0.0.7", 6379),
        asked_mono_ns=number,
        ended_mono_ns=number + 1,
        up=(0, 1),
        down=(0, 1),
    )


def test_the_same_question_gets_its_answers_in_order_and_then_none() -> None:
    pool = Pool([call(1, ["GET", "a"]), call(2, ["GET", "b"]), call(3, ["GET", "a"])])
    taken = [pool.claim(REDIS, {"command": ["GET", "a"]}, connection=1).call for _ in range(3)]
    assert [one.index if one else None for one in taken] == [1, 3, None]
    assert [one.index for one in pool.left()] == [2]


def test_its_own_connection_comes_first() -> None:
    pool = Pool([call(1, ["GET", "a"], dialogue=1), call(2, ["GET", "a"], dialogue=2)])
    found = pool.claim(REDIS, {"command": ["GET", "a"]}, connection=5, dialogue=2)
    assert found.call is not None
    assert found.call.index == 2


def test_a_miss_names_the_nearest_call_and_what_differs() -> None:
    seen: list[PoolMatch] = []
    pool = Pool([call(1, ["SET", "a", "1"]), call(2, ["GET", "b"])], on_found=seen.append)
    found = pool.claim(REDIS, {"command": ["SET", "a", "2"]}, connection=4)
    assert seen == [found]
    assert (found.call, found.connection, found.differs) == (None, 4, ("$.command[2]",))
    assert found.nearest is not None
    assert found.nearest.index == 1


def test_of_queries_only_a_call_of_the_same_statement_is_near() -> None:
    def query(number: int, statement: str, *parameters: Any) -> Call:
        asked = {"statement": statement, "parameters": list(parameters)}
        return replace(call(number, []), kind=EventKind.QUERY, asked=asked)

    insert = "insert into orders values ($1, $2, $3)"
    pool = Pool(
        [
            query(1, "CONNECT"),
            query(2, insert, "a", 1, "b"),
            query(3, "delete from orders where id = $1", "a"),
        ]
    )
    found = pool.claim(EventKind.QUERY, {"statement": insert, "parameters": ["x", 1, "y"]}, connection=1)
    assert found.nearest is not None
    assert (found.nearest.index, found.differs) == (2, ("$.parameters[0]", "$.parameters[2]"))
    found = pool.claim(EventKind.QUERY, {"statement": "select 1", "parameters": []}, connection=1)
    assert (found.nearest, found.differs) == (None, ())


def test_what_is_declared_to_differ_is_not_compared() -> None:
    pool = Pool([call(1, ["GET", "a"])], ignore=["command"])
    assert pool.claim(REDIS, {"command": ["GET", "z"]}, connection=1).call is not None


def test_a_used_call_is_given_again_only_where_that_is_allowed() -> None:
    pool = Pool([call(1, ["GET", "a"])])
    question = {"command": ["GET", "a"]}
    assert not pool.claim(REDIS, question, connection=1).again
    assert pool.claim(REDIS, question, connection=1).call is None
    assert pool.claim(REDIS, question, connection=1, again=True).again


def test_a_call_can_be_looked_for_and_given_by_itself():
    seen: list[PoolMatch] = []
    first, second = call(1, ["GET", "a"]), call(2, ["GET", "b"])
    pool = Pool([first, second], on_found=seen.append)
    assert pool.after(first) is second
    assert pool.after(second) is None
    assert pool.has(REDIS, {"command": ["get", "a"]})
    assert pool.give(first, connection=3) == seen[0]
    assert (seen[0].call, seen[0].connection) == (first, 3)
    assert not pool.is_waiting(first)
    assert not pool.has(REDIS, {"command": ["GET", "a"]})
    assert pool.has(REDIS, {"command": ["GET", "a"]}, again=True)
    assert (list(pool.waiting(REDIS)), pool.of(REDIS)) == ([second], [first, second])


def test_what_was_simulated_is_no_miss():
    seen: list[PoolMatch] = []
    pool = Pool([call(1, ["GET", "a"])], on_found=seen.append)
    pool.claim(REDIS, {"command": ["GET", "z"]}, connection=1, simulated=True)
    pool.claim(REDIS, {"command": ["GET", "a"]}, connection=1, simulated=True)
    assert [(one.simulated, one.is_miss, one.call is None) for one in seen] == [
        (True, False, True),
        (False, False, False),
    ]


def test_what_happened_before_is_not_given() -> None:
    first, second = call(1, ["GET", "a"]), call(2, ["GET", "a"])
    pool = Pool([first, second])
    pool.use_up(first)
    assert pool.claim(REDIS, {"command": ["GET", "a"]}, connection=1).call is second


def get(number: int, request: str | None, dialogue: int = 1) -> Call:
    volatile = {} if request is None else {"x-request-id": request}
    return replace(call(number, ["GET", "a"], dialogue), extra={"volatile": volatile})


def test_what_is_given_again_is_what_the_same_request_was_given() -> None:
    pool = Pool([get(1, "r1"), get(2, "r2")])

    def ask(request: str | None) -> tuple[int, bool] | None:
        origin = None if request is None else f"x-request-id {request}"
        found = pool.find(REDIS, {"command": ["GET", "a"]}, connection=1, origin=origin, again=True)
        return (found.call.index, found.again) if found is not None and found.call is not None else None

    assert [ask("r1"), ask("r2"), ask("r1")] == [(1, False), (2, False), (1, True)]
    assert [ask("r2"), ask("r3"), ask(None)] == [(2, True), (2, True), (2, True)]


def test_asked_once_more_a_request_does_not_take_what_another_has_still_to_ask_for() -> None:
    pool = Pool([get(1, "r1"), get(2, "r2"), get(3, None)])
    question = {"command": ["GET", "a"]}
    claimed = [
        pool.claim(REDIS, question, connection=1, origin=f"x-request-id {one}", again=True).call
        for one in ("r1", "r1", "r2")
    ]
    assert [one.index if one else None for one in claimed] == [1, 1, 2]


def test_a_request_with_new_ids_is_given_all_answers_in_their_order() -> None:
    pool = Pool([get(1, "r1"), get(2, "r1")])
    question = {"command": ["GET", "a"]}
    claimed = [
        pool.claim(REDIS, question, connection=1, origin="x-request-id new", again=True).call
        for _ in range(3)
    ]
    assert [one.index if one else None for one in claimed] == [1, 2, 2]


def test_thousands_of_equal_calls_are_found_by_their_requests_in_any_order() -> None:
    """Looked for one after the other, 5,000 took 21 s."""
    pool = Pool([get(one, f"r{one}", dialogue=one) for one in range(5000)])
    for one in reversed(range(5000)):
        found = pool.claim(
            REDIS, {"command": ["GET", "a"]}, connection=1, origin=f"x-request-id r{one}", again=True
        )
        assert found.call is not None
        assert (found.call.index, found.again) == (one, False)
