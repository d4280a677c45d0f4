"""Causes of failed requests as they are seen from outside: answers and stacks, all bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from relive.agent.failures.causes import Cause, CauseTable, answer_shape, stack_key
from relive.model.outcome import Stack
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

BASE = "answer 500 GET /pay"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"error": "no price for tea", "id": 17}', b'{"error": "no price for milk", "id": 18}'),
        (b"at 2026-11-29T16:00:01.5Z: no price", b"at 2026-11-30T17:10:02.5Z: no price"),
        (b"request req_8fK2jLmN: no price", b"request req_1aB4cDeF: no price"),
    ],
)
def test_values_in_an_answer_make_no_other_cause(one, other):
    shape = answer_shape(one, b"/price/tea")
    assert shape == answer_shape(other, b"/price/milk") != ""


def test_an_answer_that_says_something_else_is_another_cause():
    assert answer_shape(b'{"error": "no price"}', b"") != answer_shape(b'{"error": "no stock"}', b"")


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"17 4711", b"x " * 9000])
def test_what_tells_nothing_is_no_cause(body):
    assert answer_shape(body, b"") == ""


def test_a_stack_in_an_answer_is_what_counts_of_it():
    text = "TypeError: {} is no price\n    at cost (/app/a.js:{}:1)\n    at /app/b.js:2:3\n"
    one, other = (answer_shape(text.format(*values).encode(), b"") for values in (("tea", 7), ("milk", 7)))
    assert one == other != answer_shape(text.format("tea", 8).encode(), b"")


def stacks(*lines: int) -> list[str]:
    return [
        stack_key(Stack(exception="TypeError: x", frames=[("/app/a.js", one, "cost")], text=[]))
        for one in lines
    ]


def test_two_stacks_behind_one_answer_are_two_causes():
    table = CauseTable()
    found = [table.fingerprint(BASE, Cause(stacks=stacks(line)), ()) for line in (1, 2, 1)]
    assert found[0] == found[2] != found[1]


def test_where_others_fail_meanwhile_only_a_stack_that_is_known_of_the_route_counts():
    """GIVEN stacks in the log that may be of other requests, THEN no cause of theirs is made up for this route."""
    table = CauseTable()
    mine = table.fingerprint(BASE, Cause(stacks=stacks(1)), ())
    assert table.fingerprint(BASE, Cause(stacks=stacks(2, 1), is_alone=False), {mine}) == mine
    assert table.fingerprint(BASE, Cause(stacks=stacks(2), is_alone=False), {mine}) == BASE
    assert table.fingerprint(BASE, Cause(stacks=stacks(2)), {mine, BASE}) not in (BASE, mine)


def test_answers_that_never_say_the_same_are_few_causes():
    table = CauseTable()
    found = {
        table.fingerprint(BASE, Cause(shape=answer_shape(f"no {one * 3}".encode(), b"")), ())
        for one in map(chr, range(ord("a"), ord("z")))
    }
    assert len(found) == 9 and BASE in found


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordingWriter]:
    with closing(RecordingWriter(tmp_path / "recording", keep_bytes=1 << 20)) as made:
        yield made


def test_a_cause_is_read_from_the_recording_and_the_log(writer: RecordingWriter, tmp_path: Path):
    log = tmp_path / "stderr.log"
    log.write_text("before\nTypeError: tea\n    at cost (/app/a.js:7:1)\n")
    fields = {"log_offsets": {str(log): 7}}
    writer.append(EventKind.REQUEST_STARTED, 1, 1, b"GET /price/tea HTTP/1.1\r\n\r\n", fields)
    writer.append(EventKind.REQUEST_ENDED, 1, 1, b"", {"bytes": 0})
    head = b"HTTP/1.1 500 No\r\nContent-Length: 16\r\n\r\n"
    writer.append(EventKind.ANSWER_STARTED, 1, 1, head, {"status": 500})
    writer.append(EventKind.ANSWER_BODY, 1, 1, b"no price for tea", {})
    writer.append(EventKind.ANSWER_ENDED, 1, 1, b"", {"bytes": 16})
    writer.flush()
    exchange = Exchanges(Recording(tmp_path / "recording")).by_number(1)
    cause = Cause.of(exchange, log, is_alone=True)
    assert cause.shape == answer_shape(b"no price for milk", b"/price/milk")
    assert len(cause.stacks) == 1
    log.unlink()
    assert Cause.of(exchange, log, is_alone=True).stacks == []


def test_an_answer_that_cannot_be_read_loses_no_failure(
    writer: RecordingWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    writer.append(EventKind.REQUEST_STARTED, 1, 1, b"GET /price/tea HTTP/1.1\r\n\r\n", {})
    writer.append(EventKind.REQUEST_ENDED, 1, 1, b"", {"bytes": 0})
    writer.append(
        EventKind.ANSWER_STARTED, 1, 1, b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n", {"status": 500}
    )
    writer.append(EventKind.ANSWER_BODY, 1, 1, b"no", {})
    writer.append(EventKind.ANSWER_ENDED, 1, 1, b"", {"bytes": 2})
    writer.flush()

    def break_off(body: bytes, request: bytes) -> str:
        raise ValueError(f"{body!r} of {request!r}")

    monkeypatch.setattr("relive.agent.failures.causes.answer_shape", break_off)
    with capture_logs() as logs:
        cause = Cause.look_up(tmp_path / "recording", 1, tmp_path / "no.log", is_alone=False)
    assert cause == Cause(is_alone=False)
    assert [one["request"] for one in logs] == [1]


def test_a_line_number_of_thousands_of_digits_is_read():
    text = f'Traceback (most recent call last):\n  File "a.py", line {"9" * 5000}, in f\nKeyError: 1\n'
    assert answer_shape(text.encode(), b"")


def test_long_names_of_classes_tell_causes_apart():
    shapes = {
        answer_shape(f"failed: {name}".encode(), b"")
        for name in (
            "java.lang.NullPointerException",
            "java.sql.SQLTransientConnectionException",
            "InsufficientInventoryAllocationError",
            "abcdefghijklmnopqrstuvwxyzabcdef",
        )
    }
    assert len(shapes) == 4
    tokens = {answer_shape(f"failed: {one * 30}".encode(), b"") for one in "abc"}
    assert len(tokens) == 1


@pytest.mark.parametrize("order", [lambda own: (9, own), lambda own: (own, 9)])
def test_a_harmless_stack_beside_it_hides_no_cause(order):
    table = CauseTable()
    known = {table.fingerprint(BASE, Cause(stacks=stacks(9)), ())}
    found = [table.fingerprint(BASE, Cause(stacks=stacks(*order(own))), known) for own in (1, 2, 1)]
    assert found[0] == found[2]
    assert len({*known, found[0], found[1]}) == 3
    assert (
        table.fingerprint(BASE, Cause(stacks=stacks(2, 3, 9), is_alone=False), {*known, *found}) == found[1]
    )


def test_stacks_that_never_come_again_are_few_causes():
    table = CauseTable()
    found = {table.fingerprint(BASE, Cause(stacks=stacks(line)), ()) for line in range(1000)}
    assert len(found) == 33 and BASE in found
