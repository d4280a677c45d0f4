"""The rules by which a replay is judged, one by one."""

from __future__ import annotations

import base64
import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.model.outcome import End, InsideEvent, Outcome, Stack, Stubbed, VerdictKind
from relive.model.stack import find_stack
from relive.replay.difference import first_difference
from relive.replay.verdict import VOLATILE_HEADERS, Earlier, compare, is_failure, same_answer

REPRODUCED, SAME = VerdictKind.REPRODUCED, VerdictKind.SAME_ANSWER
NOT, DIVERGED = VerdictKind.NOT_REPRODUCED, VerdictKind.DIVERGED


def answered(status: int = 500, body: str = "", **more) -> Outcome:
    return Outcome(end=End.ANSWERED, status=status, body=body, **more)


def called(code: int) -> Outcome:
    return answered(200, headers=[("content-type", "application/grpc"), ("grpc-status", str(code))])


def died(*, signal: int | None = None, exit_status: int | None = None, **more) -> Outcome:
    exit_status = exit_status if signal is None else 128 + signal
    return Outcome(end=End.DIED, signal=signal, exit_status=exit_status, **more)


def stack(exception: str = "ValueError: no", *functions: str, line: int = 3) -> Stack:
    return Stack(
        exception=exception, frames=[("app.py", line, name) for name in functions or ("pay",)], text=[]
    )


BROKEN, NO_ANSWER, NOTHING = (Outcome(end=end) for end in (End.BROKEN, End.NO_ANSWER, End.NOTHING))


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (answered(200), False),
        (answered(404), False),
        (answered(499), False),
        (answered(500), True),
        (answered(599), True),
        (called(0), False),
        (called(5), False),
        (called(13), True),
        (called(99), True),
        (answered(200, headers=[("grpc-status", "13")]), False),
        (BROKEN, True),
        (NO_ANSWER, True),
        (died(signal=11), True),
        (died(exit_status=0), True),
        (NOTHING, False),
    ],
)
def test_what_counts_as_a_failure(outcome, failed):
    assert is_failure(outcome) is failed


CASES = {
    # Rule 1: no failure came.
    "a call of gRPC answered well": (
        called(13),
        called(0),
        NOT,
        "gRPC status 13 INTERNAL was recorded, gRPC status 0 OK came",
    ),
    "a call of gRPC failed otherwise": (
        called(13),
        called(2),
        DIVERGED,
        "gRPC status 13 INTERNAL was recorded, gRPC status 2 UNKNOWN came",
    ),
    "answered well instead of badly": (
        answered(500),
        answered(200),
        NOT,
        "status 500 was recorded, 200 came",
    ),
    "a client error instead of a server's": (
        answered(500),
        answered(404),
        NOT,
        "status 500 was recorded, 404 came",
    ),
    "answered instead of hanging": (
        NO_ANSWER,
        answered(200),
        NOT,
        "no answer came; replayed: answered with status 200",
    ),
    "went on instead of dying": (
        died(signal=11),
        NOTHING,
        NOT,
        "died of signal 11; replayed: nothing failed",
    ),
    "went on instead of ending": (
        died(exit_status=3),
        NOTHING,
        NOT,
        "ended with status 3; replayed: nothing failed",
    ),
    # Rule 2: another failure came.
    "another bad status": (answered(500), answered(503), DIVERGED, "status 500 was recorded, 503 came"),
    "broken instead of answered": (
        answered(500),
        BROKEN,
        DIVERGED,
        "connection broke before the answer was whole",
    ),
    "hanging instead of answered": (answered(500), NO_ANSWER, DIVERGED, "no answer came"),
    "another signal": (
        died(signal=11),
        died(signal=6),
        DIVERGED,
        "signal 11; replayed: the service died of signal 6",
    ),
    "a worker's exit instead of the service's": (
        died(exit_status=3),
        died(exit_status=3, worker=True),
        DIVERGED,
        "replayed: a worker ended with status 3",
    ),
    "want of memory instead of an exit": (
        died(exit_status=3),
        died(signal=9, exit_status=137, out_of_memory=True),
        DIVERGED,
        "replayed: the kernel killed it for want of memory",
    ),
    "a status instead of a signal": (
        died(signal=6),
        died(exit_status=134),
        DIVERGED,
        "replayed: it ended with status 134",
    ),
    "another exit status": (
        died(exit_status=1),
        died(exit_status=2),
        DIVERGED,
        "status 1; replayed: it ended with status 2",
    ),
    "a failure where none was": (answered(200), answered(500), DIVERGED, "status 200 was recorded, 500 came"),
    "another good status": (answered(200), answered(201), DIVERGED, "status 200 was recorded, 201 came"),
    # The same end.
    "the same status": (answered(500), answered(500), SAME, None),
    "the same good answer": (answered(200, "hello"), answered(200, "hello"), REPRODUCED, None),
    "the same signal": (died(signal=11), died(signal=11), SAME, None),
    "the same exit status": (died(exit_status=3), died(exit_status=3), SAME, None),
    "hanging again": (NO_ANSWER, NO_ANSWER, SAME, None),
    "broken again": (BROKEN, BROKEN, SAME, None),
    # Rule 3: stacks.
    "the same stack": (answered(stack=stack()), answered(stack=stack()), REPRODUCED, None),
    "another message of the same type": (
        answered(stack=stack("KeyError: 'a17'")),
        answered(stack=stack("KeyError: 'a18'")),
        REPRODUCED,
        None,
    ),
    "another type": (
        answered(stack=stack("KeyError: 1")),
        answered(stack=stack("IndexError: 1")),
        DIVERGED,
        "'KeyError: 1' was recorded, 'IndexError: 1' came",
    ),
    "another frame": (
        answered(stack=stack("E", "main", "pay")),
        answered(stack=stack("E", "main", "charge")),
        DIVERGED,
        "frame 1 of the stack: app.py:3 in pay was recorded, app.py:3 in charge came",
    ),
    "another line": (
        answered(stack=stack(line=3)),
        answered(stack=stack(line=4)),
        DIVERGED,
        "app.py:3 in pay was recorded",
    ),
    "a frame more": (
        answered(stack=stack("E", "pay")),
        answered(stack=stack("E", "pay", "charge")),
        DIVERGED,
        "frame 1 of the stack: nothing was recorded, app.py:3 in charge came",
    ),
    "bodies differ beside an equal stack": (
        answered(body="id 1", stack=stack()),
        answered(body="id 2", stack=stack()),
        REPRODUCED,
        None,
    ),
    "only one printed a stack, the bodies are equal": (answered(stack=stack()), answered(), SAME, None),
    # Rule 4: bodies.
    "other bodies": (answered(body="a"), answered(body="b"), DIVERGED, "body: 'a' was recorded, 'b' came"),
    "other JSON": (
        answered(body='{"a": {"b": [1, 2]}}'),
        answered(body='{"a": {"b": [1, 3]}}'),
        DIVERGED,
        "body $.a.b[1]: '2' was recorded, '3' came",
    ),
    "the same JSON, written otherwise": (
        answered(body='{"a":1,"b":2}'),
        answered(body='{ "b": 2, "a": 1 }'),
        SAME,
        None,
    ),
    "a body that became JSON": (
        answered(body="oh"),
        answered(body="{}"),
        DIVERGED,
        "body: 'oh' was recorded, '{}' came",
    ),
    "a long body": (
        answered(body="a" * 99),
        answered(body="b" * 99),
        DIVERGED,
        "body: '" + "a" * 57 + "...'",
    ),
}


@pytest.mark.parametrize(("recorded", "replayed", "kind", "difference"), CASES.values(), ids=CASES)
def test_rule(recorded, replayed, kind, difference):
    verdict = compare(recorded, replayed)
    assert verdict.kind is kind
    if difference is None:
        assert verdict.difference is None
    else:
        assert difference in (verdict.difference or "")


def test_an_earlier_difference_makes_a_run_without_failure_one_that_diverged():
    """The service had gone another way before the failing request came."""
    verdict = compare(
        answered(500),
        answered(200),
        earlier=Earlier("request 3: status 200 was recorded, 201 came", ended_otherwise=True),
    )
    assert verdict.kind is DIVERGED
    assert verdict.difference == "request 3: status 200 was recorded, 201 came"
    assert verdict.notes == ["status 500 was recorded, 200 came"]


@pytest.mark.parametrize("replayed", [answered(500), answered(503)])
def test_an_earlier_difference_is_only_noted_when_a_failure_came(replayed):
    verdict = compare(answered(500), replayed, earlier=Earlier("request 3: oh", ended_otherwise=False))
    assert verdict.notes[0] == "before it: request 3: oh"


@pytest.mark.parametrize("name", sorted(VOLATILE_HEADERS))
def test_headers_that_always_vary_are_not_mentioned(name):
    verdict = compare(answered(headers=[(name, "1")]), answered(headers=[(name, "2")]))
    assert verdict.notes == []


def test_other_headers_are_noted_and_do_not_decide():
    verdict = compare(answered(headers=[("x-shard", "1")]), answered(headers=[("x-shard", "2")]))
    assert verdict.kind is SAME
    assert verdict.notes == ["header ('x-shard', '1') was recorded, ('x-shard', '2') came"]


def test_a_header_can_be_declared_to_vary():
    verdict = compare(
        answered(headers=[("x-shard", "1")]), answered(headers=[("x-shard", "2")]), ignore=["header:X-Shard"]
    )
    assert verdict.notes == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [("body:$.id", SAME), ("body:$", SAME), ("body:$.other", DIVERGED), ("header:id", DIVERGED)],
)
def test_a_part_of_the_body_can_be_declared_to_vary(path, kind):
    assert compare(answered(body='{"id": 1}'), answered(body='{"id": 2}'), ignore=[path]).kind is kind


@pytest.mark.parametrize(
    ("recorded", "came", "kind"),
    [
        ("key s3cr3t!", "key <secret:0f3b79db>", REPRODUCED),
        ("s3cr3t", "<secret:0f3b79db>", REPRODUCED),
        ("a one b two c", "a <secret:0f3b79db> b <secret:1f3b79db> c", REPRODUCED),
        ('{"n": 1, "of": "a one"}', '{"of": "a <secret:0f3b79db>", "n": 1}', REPRODUCED),
        ('{"n": 1, "of": "a one"}', '{"of": "a <secret:0f3b79db>", "n": 2}', DIVERGED),
        ("key ", "key <secret:0f3b79db>", DIVERGED),
        ("key s3cr3t?", "key <secret:0f3b79db>!", DIVERGED),
        ("a one c", "a <secret:0f3b79db> b <secret:1f3b79db> c", DIVERGED),
        ("key <secret:0f3b79db>", "key s3cr3t!", DIVERGED),
        ("aba", "ab<secret:0f3b79db>ba", DIVERGED),
    ],
)
def test_a_placeholder_that_came_is_the_secret_that_was_recorded(recorded, came, kind):
    assert compare(answered(200, recorded), answered(200, came)).kind is kind
    assert (compare(answered(log=[recorded]), answered(log=[came])).notes == []) is (
        kind is REPRODUCED and "{" not in recorded
    )


def test_log_lines_are_compared_without_numbers_and_addresses():
    recorded = answered(log=["worker 17 at 0x7f00: oh"])
    assert compare(recorded, answered(log=["worker 18 at 0xdeadbeef: oh"])).notes == []
    [note] = compare(recorded, answered(log=["worker 18 at 0x1: ah"])).notes
    assert note.startswith("log line 1 differs: 'worker ")


def test_a_log_line_that_differs_is_shown_as_it_was():
    [note] = compare(answered(log=["worker 17 at 0x7f00: oh"]), answered(log=["worker 18 at 0x1: ah"])).notes
    assert "'worker 17 at 0x7f00: oh' was recorded, 'worker 18 at 0x1: ah' came" in note


def test_a_log_line_that_is_missing_is_noted():
    [note] = compare(answered(log=["a", "b"]), answered(log=["a"])).notes
    assert note.startswith("log line 2 differs")


def test_the_same_answer_is_the_same_end_status_and_body():
    assert same_answer(answered(200, "a"), answered(200, "a")) is None
    assert "status" in (same_answer(answered(200), answered(201)) or "")
    assert "body" in (same_answer(answered(200, "a"), answered(200, "b")) or "")
    assert same_answer(answered(200, '{"at": 1}'), answered(200, '{"at": 2}'), ["body:$.at"]) is None


outcomes = st.builds(
    Outcome,
    end=st.sampled_from(End),
    status=st.none() | st.sampled_from([200, 404, 500, 503]),
    body=st.sampled_from(["", "a", "{}", '{"a": 1}', "[1, 2]", "nonsense {"]),
    signal=st.none() | st.sampled_from([6, 11]),
    exit_status=st.none() | st.sampled_from([0, 1, 139]),
    log=st.lists(st.sampled_from(["a", "b 1"]), max_size=2),
    stack=st.none()
    | st.builds(stack, st.sampled_from(["KeyError: 1", "ValueError"]), st.sampled_from(["f", "g"])),
)


@given(outcomes)
def test_an_outcome_reproduces_itself(outcome):
    verdict = compare(outcome, copy.deepcopy(outcome))
    assert verdict.kind is (REPRODUCED if verdict.evidence or not is_failure(outcome) else SAME)
    assert verdict.notes == []


@given(outcomes, outcomes, st.none() | st.just(Earlier("request 1: oh", ended_otherwise=False)))
def test_only_what_is_reproduced_has_no_difference(recorded, replayed, earlier):
    verdict = compare(recorded, replayed, earlier=earlier)
    assert (verdict.difference is None) == (verdict.kind in (REPRODUCED, SAME))
    assert (verdict.unseen != []) == (verdict.kind is SAME)
    assert verdict.kind is not VerdictKind.FAILED_TO_RESTORE


@given(outcomes, outcomes)
def test_who_reproduces_is_reproduced(one, other):
    assert (compare(one, other).kind is REPRODUCED) == (compare(other, one).kind is REPRODUCED)


# -- first_difference --------------------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, 1.0, -0.5])
    | st.text("ab", max_size=2)
)
json_values = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), below, max_size=3)
    ),
    max_leaves=8,
)


plain_values = st.recursive(
    st.none() | st.integers(2, 4) | st.text("ab", max_size=2),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), below, max_size=3)
    ),
    max_leaves=8,
)


def canonical(value: object) -> str:
    """Equal for values that are the same JSON: 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize(("one", "other"), [([True], [1]), ([1], [1.0]), ({"a": False}, {"a": 0})])
def test_a_type_that_differs_inside_is_a_difference(one, other):
    """A flag that became a number is another answer, at any depth."""
    assert first_difference(one, other) is not None


@given(plain_values, plain_values)
def test_there_is_no_difference_exactly_when_values_are_equal(one, other):
    assert (first_difference(one, other) is None) == (canonical(one) == canonical(other))


@given(json_values, json_values)
def test_both_directions_differ_at_the_same_place(one, other):
    forth, back = first_difference(one, other), first_difference(other, one)
    assert (forth is None) == (back is None)
    if forth is not None and back is not None:
        assert forth.split(": ")[0] == back.split(": ")[0]


@given(json_values)
def test_a_value_does_not_differ_from_its_copy(value):
    assert first_difference(value, copy.deepcopy(value)) is None


@given(json_values, json_values)
def test_what_is_ignored_at_the_place_of_the_difference_does_not_differ(one, other):
    found = first_difference(one, other)
    while found is not None:
        ignored = found.split(": ")[0]
        again = first_difference(one, other, {ignored})
        assert again is None or again.split(": ")[0] != ignored
        found = None


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, "$.b: nothing was recorded, '2' came"),
        ({"a": 1}, {}, "$.a: '1' was recorded, nothing came"),
        ([1, 2], [1], "$: '[1, 2]' was recorded, '[1]' came"),
        ([1, [2, 3]], [1, [2, 4]], "$[1][1]: '3' was recorded, '4' came"),
        (1, "1", "$: '1' was recorded, '1' came"),
        (None, {}, "$: 'null' was recorded, '{}' came"),
        (True, 1, "$: 'true' was recorded, '1' came"),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, "$.a: '1' was recorded, '2' came"),
    ],
)
def test_the_place_and_both_values_are_named(one, other, difference):
    assert first_difference(one, other) == difference


@pytest.mark.parametrize(
    ("ignore", "is_equal"),
    [
        ("$", True),
        ("$.items[*].id", True),
        ("$.items[1].id", True),
        ("$.i*[1]", True),
        ("$.items[0].id", False),
        ("$.items.id", False),
    ],
)
def test_paths_to_ignore_are_those_of_calls(ignore: str, is_equal: bool) -> None:
    """One grammar: what ``--ignore`` takes is neither silently nothing nor more than it says."""
    one, other = ({"items": [{"id": 1}, {"id": number}]} for number in (2, 3))
    assert (first_difference(one, other, {ignore}) is None) is is_equal


def test_the_place_of_a_difference_is_named_as_ignore_takes_it() -> None:
    one, other = {"a b": [1]}, {"a b": [2]}
    found = first_difference(one, other)
    assert found == "$['a b'][0]: '1' was recorded, '2' came"
    assert first_difference(one, other, {"$['a b'][0]"}) is None


def test_where_any_statement_took_any_answer_nothing_is_reproduced() -> None:
    log = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "KeyError: 1"]
    stubs = Stubbed(continued=0, given=3, missed=0)
    recorded, came = answered(log=log), answered(log=log, stubs=stubs)
    assert compare(recorded, came, ignore=["$.parameters[0]"]).kind is VerdictKind.REPRODUCED
    verdict = compare(recorded, came, ignore=["$.statement"])
    assert verdict.kind is VerdictKind.SAME_ANSWER
    assert verdict.unseen == ["with --ignore '$.statement' a call takes the answer to another one"]


def test_a_body_that_is_nested_too_deep_for_json_is_compared_as_text():
    verdict = compare(answered(body="[" * 100_000), answered(body="[" * 99_999))
    assert verdict.kind is DIVERGED


def test_the_kept_parts_of_cut_bodies_are_still_compared():
    recorded = answered(body="aaa", body_cut=5)
    assert compare(recorded, answered(body="aaabbbbb")).kind is SAME
    assert compare(recorded, answered(body="xxxbbbbb")).kind is DIVERGED
    assert compare(recorded, answered(body="aa")).kind is DIVERGED
    verdict = compare(recorded, answered(body="aaabbbbbb"))
    assert verdict.kind is DIVERGED and verdict.difference == "body: 8 bytes were recorded, 9 came"
    assert same_answer(recorded, answered(body="aaabbbbbb")) == verdict.difference
    assert compare(recorded, answered(body="aaa<secret:0123abcd>")).kind is SAME, "as long as nobody knows"


@pytest.mark.parametrize(("cut", "kind"), [(0, DIVERGED), (4, DIVERGED), (5, SAME), (6, DIVERGED)])
def test_cut_bodies_of_which_the_same_was_kept_are_told_apart_by_their_length(cut, kind):
    assert compare(answered(body="aaa", body_cut=5), answered(body="aaa", body_cut=cut)).kind is kind
    assert compare(answered(body="aaa", body_cut=cut), answered(body="aaa", body_cut=5)).kind is kind


@pytest.mark.parametrize(
    ("replayed", "kind"),
    [(b"a\xff" + b"b" * 9, SAME), (b"a\xfe" + b"b" * 9, DIVERGED), (b"a\xffb", DIVERGED), (b"", DIVERGED)],
)
def test_the_kept_part_of_what_is_no_text_is_compared(replayed, kind):
    recorded = answered(body=base64.b64encode(b"a\xff").decode(), body_is_base64=True, body_cut=9)
    came = answered(body=base64.b64encode(replayed).decode(), body_is_base64=True)
    assert compare(recorded, came).kind is kind
    text = answered(body="a", body_cut=10)
    assert replayed[:1] != b"a" or len(replayed) != 11 or compare(text, came).kind is SAME


OTHER_THREADS = """\
Traceback (most recent call last):
  File "socketserver.py", line 8, in handle
ConnectionResetError: [Errno 104] Connection reset by peer
""".splitlines()
OURS = """\
Traceback (most recent call last):
  File "app.py", line 3, in pay
TypeError: no
""".splitlines()


def test_a_stack_that_another_thread_printed_first_does_not_hide_the_equal_one():
    recorded = answered(stack=find_stack(OTHER_THREADS), log=[*OTHER_THREADS, *OURS])
    assert compare(recorded, answered(stack=find_stack(OURS), log=OURS)).kind is REPRODUCED


def test_stacks_of_which_none_is_equal_are_told_by_the_first():
    verdict = compare(
        answered(stack=find_stack(OTHER_THREADS), log=OTHER_THREADS),
        answered(stack=find_stack(OURS), log=OURS),
    )
    assert verdict.kind is DIVERGED
    assert "ConnectionResetError" in (verdict.difference or "")


def asked(text: str) -> InsideEvent:
    return InsideEvent(kind="query", lane=1, about={"asked": {"statement": text}, "answer": 1})


def read(value: float) -> InsideEvent:
    return InsideEvent(kind="clock", lane=1, about={"source": "time.time", "value": value})


OTHER_CALL = "event 1 of request 9: query 'select' was recorded, query 'update' came"
OTHER_READING = "event 1 of request 9: clock time.time: $.value: '1.0' was recorded, '2.0' came"
INSIDE_CASES = {
    "the same failure by another way": (
        answered(stack=stack(), events=[asked("select")]),
        answered(stack=stack(), events=[asked("update")]),
        (REPRODUCED, None, [], [OTHER_CALL]),
    ),
    "an equal body after another call": (
        answered(body="Internal Server Error", events=[asked("select")]),
        answered(body="Internal Server Error", events=[asked("update")]),
        (DIVERGED, OTHER_CALL, [], []),
    ),
    "an equal body after another reading": (
        answered(body="Internal Server Error", events=[read(1.0)]),
        answered(body="Internal Server Error", events=[read(2.0)]),
        (SAME, None, [], [OTHER_READING]),
    ),
    "no failure, and the reason": (
        answered(500, events=[read(1.0)]),
        answered(200, events=[read(2.0)]),
        (NOT, OTHER_READING, ["status 500 was recorded, 200 came"], []),
    ),
    "another failure, and the reason": (
        answered(stack=stack("KeyError: 1"), events=[asked("select")]),
        answered(stack=stack("ValueError: 1"), events=[asked("update")]),
        (DIVERGED, OTHER_CALL, ["'KeyError: 1' was recorded, 'ValueError: 1' came"], []),
    ),
    "nothing known of one side": (
        answered(events=[asked("select")]),
        answered(),
        (SAME, None, [], []),
    ),
}


@pytest.mark.parametrize("name", INSIDE_CASES)
def test_what_happened_inside_is_weighed(name):
    recorded, replayed, expected = INSIDE_CASES[name]
    verdict = compare(recorded, replayed, request=9)
    assert (verdict.kind, verdict.difference, verdict.notes, verdict.inside) == expected


def test_what_differs_inside_can_be_ignored():
    recorded, replayed, _ = INSIDE_CASES["an equal body after another call"]
    assert compare(recorded, replayed, ignore=["event:query"]).kind is REPRODUCED
    assert compare(recorded, replayed, ignore=["event:query:$.asked"]).kind is REPRODUCED
