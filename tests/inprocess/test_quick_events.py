"""Events, rows, parameters, answers and log records are the same to the byte, written in C or in Python."""

from __future__ import annotations

import contextvars
import json
import logging
import math
import sys
import uuid
import zlib
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .conftest import INPROCESS
from .quick_bench import native, packable, pairs_in, plain, texts

sys.path.insert(0, str(INPROCESS))
from relive_recorder import values
from relive_recorder.kinds import logs, query, randomness
from relive_recorder.recorder import encode, recorder

sys.path.remove(str(INPROCESS))


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    return pairs_in(tmp_path_factory.mktemp("rings"))


@given(st.floats() | st.floats(1e-4, 2e9) | st.decimals(0, 10**9, places=2).map(float))
@example(1e-4)
@example(0.5)
@example(-0.0)
@example(9007199254740991.0)
@example(4503599627370495.5)
def test_a_number_is_written_as_repr_does(benches, value):
    quickly, _ = benches()
    with quickly:
        written = quickly.ring.quick.emit("note", [value], b"", None)
    assert (written is not None) is math.isfinite(value)
    assert not written or quickly.records()[0][0].endswith(f",[{value!r}]]")


@settings(max_examples=50)
@given(
    st.recursive(
        plain,
        lambda below: st.lists(below, max_size=4) | st.dictionaries(texts, below, max_size=4),
        max_leaves=8,
    )
)
def test_an_event_is_the_same_json(benches, value):
    quickly, slowly = benches()
    for bench in (quickly, slowly):
        with bench:
            recorder.emit("note", {"about": value}, b"data", 7)
            recorder.emit_json("note", encode([1]), b"")
    assert quickly.records() == slowly.records()


@settings(max_examples=50)
@given(st.lists(st.lists(packable, max_size=4).map(tuple) | st.lists(plain, max_size=3), max_size=5))
def test_rows_are_told_the_same(benches, rows):
    quickly, slowly = benches()
    for bench in (quickly, slowly):
        with bench:
            query.record_rows(5, list(rows))
    assert quickly.records() == slowly.records()


@settings(max_examples=50)
@given(
    st.lists(packable, max_size=5).map(tuple)
    | st.lists(packable, max_size=3)
    | st.none()
    | st.dictionaries(texts, plain, max_size=2)
)
def test_parameters_of_a_query_are_told_the_same(benches, parameters):
    quickly, slowly = benches()
    with quickly:
        query.asked_quickly("sqlite", "a.db", "SELECT ?", parameters)  # the first time it says nothing
        told = query.asked_quickly("sqlite", "a.db", "SELECT ?", parameters)
    with slowly:
        known = query.asked_json("sqlite", "a.db", "SELECT ?", parameters)
    assert told is None or told[8:].decode("ascii") == known


@settings(max_examples=50)
@given(packable)
def test_an_answer_is_told_the_same(benches, value):
    quickly, _ = benches()
    with quickly:
        asked = quickly.ring.quick.asked('{"a":1', "", None)
        told = quickly.ring.quick.answered("redis-command", asked, value)
        packed = recorder.scrubber.packed(values.pack(value))
    if told is not None:
        fields = json.loads(f"[{quickly.records()[0][0]}")[-1]
        assert encode(fields["answer"]) == encode(packed)
        assert fields["asked"] == {"a": 1}
        assert fields["ns"] >= 0


@settings(max_examples=50)
@given(st.uuids() | st.integers(0, 1 << 64).map(lambda number: uuid.UUID(int=number)))
@example(uuid.UUID(int=0))
@example(uuid.UUID(int=(1 << 128) - 1))
def test_a_uuid_is_told_the_same(benches, value):
    quickly, slowly = benches()
    untold = []
    parts = b'{"source":"uuid.uuid4","value":', lambda: value, None, untold.append, recorder, {}
    with quickly:
        assert native.Draw(parts, True, uuid.UUID)() is value
    with slowly:
        randomness._emit_uuid("uuid.uuid4", value, False)
    assert quickly.records() == slowly.records()
    assert not untold


def test_a_uuid_of_another_class_is_told_by_the_python_code(benches):
    class Odd(uuid.UUID):
        pass

    untold = []
    parts = b'{"source":"uuid.uuid4","value":', lambda: Odd(int=7), None, untold.append, recorder, {}
    with benches()[0] as bench:
        assert [native.Draw(parts, True, uuid.UUID)()] == untold
    assert not bench.records()


@pytest.mark.parametrize(
    "rows",
    [
        [("a" * 50_000, 1)],
        [("grün" * 30_000, None), ("b" * 16384, "c" * 16385)],
        [("x" * 1020 + " hunter2-hunter2 " + "x" * 50_000,)],
        [
            (
                "x" * 1020 + "grünes-Geheimnis" + "\U0001f600" * 50_000,
                b"y" * 60_000,
                b"\xc3" * 1024 + b"y" * 60_000,
            )
        ],
        [(("x" + "ü" * 50_000).encode(), "half a pair \ud800" * 5000)],
        [tuple("long enough " * 90 for _ in range(40)), (1,)],
        [("x" * 900, number) for number in range(30)],
        [("x" * 50_000, "secret"), (b"",)],
    ],
)
def test_of_rows_that_are_long_the_same_is_kept(benches, rows):
    told = []
    for bench in benches(most=4096):
        with bench:
            query.record_rows(7, rows)
        told.append(bench.records())
    assert told[0] == told[1]
    kept = json.loads(f"[{told[0][0][0]}")[-1]
    assert "hunter2" not in str(kept) and "Geheimnis" not in str(kept)
    assert len(kept["rows"]) + kept.get("rows_cut", 0) == len(rows)
    for row, of_row in zip(kept["rows"], rows, strict=False):
        for one, value in zip(row, of_row, strict=True):
            if type(one) is dict and one["$"][0] == "long":
                data = value.encode("utf-8", "surrogatepass") if type(value) is str else value
                assert one["$"][2:] == [len(value), zlib.crc32(data)]


def test_a_long_text_is_written_by_the_part_in_c(benches):
    with benches(most=16384)[0] as bench:
        assert bench.ring.quick.rows(1, [("x" * 100_000, 1), ("ü" * 100_000, 2)]) == 1


@settings(max_examples=50)
@example("a\ud800", ("orders", "WARNING", "/a.py", 7), True, None, ())
@example("plain", ("orders", "WARNING", "/\\ä.py", 7), True, None, ())
@example("plain", ("orders", "WARNING", "/a.py", 1 << 70), True, None, ())
@example(
    "order %d of %s: %s, %s",
    ("orders", "WARNING", "/a.py", 7),
    False,
    None,
    (7, "password=hunter22", None, 0.5),
)
@example("%s", ("orders", "WARNING", "/a.py", 7), False, None, (Decimal(7),))
@example("%s and %s", ("orders", "WARNING", "/a.py", 7), False, None, (object(), 1))
@example("%(a)s", ("orders", "WARNING", "/a.py", 7), False, None, ({"a": 1},))
@given(
    texts | texts.map(lambda one: one * 2000) | st.sampled_from(["%s", "%d of %s", "100%", "%c"]),
    st.tuples(texts, texts, texts, st.integers(-(1 << 70), 1 << 70)) | st.tuples(plain, plain, plain, plain),
    st.booleans(),
    st.sampled_from([None, False, (ValueError, None, None), (None, None, None)]),
    st.none() | st.lists(plain | st.binary(max_size=4), max_size=2).map(tuple),
)
def test_a_log_record_is_told_the_same(benches, text, parts, is_made, raised, args):
    record = logging.LogRecord(parts[0], 30, parts[2], parts[3], text, args, raised)
    record.levelname = parts[1]
    if is_made:
        record.message = text
    told = []
    for bench in benches():
        with bench:
            writer = recorder.quick
            if writer is None or writer.logged(record) is None:
                logs._emit(record)
        told.append(bench.records())
    assert told[0] == told[1]


def test_plain_events_are_written_by_the_part_in_c(benches):
    """Otherwise the tests above would say nothing."""
    with benches()[0] as bench:
        quickly = bench.ring.quick
        assert quickly.emit("note", {"a": [1.5, None, "é", {"b": (True,)}]}, b"", None) == 1
        assert quickly.rows(1, [(1, "a", b"b", None, 2.5)]) == 2
        assert quickly.started("asgi", "GET", "/a", ["h", 1], ((b"host", b"h"),), 3) == 3
        assert quickly.ended(0, 200, ((b"a", b"b"),), b"{}", 3) == 4
        asked = quickly.asked('{"a":1', ',"parameters":', (1, "x"))
        assert quickly.answered("redis-command", asked, [b"OK", 1]) == 5
        assert quickly.last() == 5
        scope = {"raw_path": b"/a", "query_string": b"b=c", "method": "GET", "headers": [(b"host", b"h")]}
        for client in (None, ("h", 1), ["h", 1]):
            begun = contextvars.copy_context().run(quickly.arrived, {**scope, "client": client})
            assert begun.about["target"] == "/a?b=c"
        record = logging.LogRecord("orders", logging.WARNING, "/a.py", 7, "an order", (), None)
        record.message = "an order"
        assert quickly.logged(record) == 9
        record = logging.LogRecord(
            "orders", logging.WARNING, "/a.py", 7, "order %d of %s", (7, "somebody"), None
        )
        assert quickly.logged(record) == 10


def test_what_a_signal_raises_while_a_checker_is_made_is_passed_on(benches, monkeypatch):
    """As everywhere in the recorder (guard.py); what the recorder's own code raises is not."""
    raised = KeyboardInterrupt()

    def make_checker():
        raise raised

    with benches()[0] as bench:
        quickly, asked = bench.ring.quick, ('{"a":1', ',"parameters":', (1, "x"))
        # Of a bench the scrubber stays the recorder's, also for the tests of other files.
        monkeypatch.setattr(bench.scrubber, "checker", None)
        monkeypatch.setattr(bench.scrubber, "make_checker", make_checker)
        for call in (
            lambda: quickly.asked(*asked),
            lambda: quickly.rows(1, [(1, "a")]),
            lambda: quickly.started("asgi", "GET", "/a", ["h", 1], (), 3),
            lambda: quickly.arrived({"raw_path": b"/a", "query_string": b"", "method": "GET", "headers": []}),
            lambda: quickly.ended(0, 200, (), b"{}", 3),
        ):
            raised = KeyboardInterrupt()
            with pytest.raises(KeyboardInterrupt):
                call()
            raised = ValueError("of the recorder")
            assert call() is None
