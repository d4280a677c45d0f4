"""The part in C does what the part in Python does: the same answers to the same questions, the same records to the byte."""

from __future__ import annotations

import contextvars
import json
import logging
import math
import mmap
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .conftest import INPROCESS, each_python

sys.path.insert(0, str(INPROCESS))
from relive_recorder import context, quick, scrub, values
from relive_recorder.kinds import logs, query
from relive_recorder.options import Options
from relive_recorder.recorder import RECORD, encode, recorder
from relive_recorder.ring import EPOCH, HEADER_BYTES, RECORD_HEADER, Ring
from relive_recorder.servers import asgi, handling

sys.path.remove(str(INPROCESS))

native = quick.load()
handling.handle_in_c()
native.asgi(asgi.RecordedAsgi, asgi._received, asgi._note_sent, asgi._awaited)
context.in_c(native)
assert native is not None, f"run make setup: {quick.why_not}"

SECRETS = ["hunter2-hunter2", "grünes-Geheimnis", "a&b c=d/e", "4f6f0d", "tok_1234567890"]
LIKELY = [
    "password",
    "PassWord",
    "api-key",
    "to\u212aen",
    "https://u:p@h/",
    "Bearer abcdefgh1",
    "basic ",
    "4111 1111-11111111 1",
    "4111111111111111",
    "123456789012",
    "=",
    ":",
    '"',
    "\\",
    "é",
    "\U0001f600",
    "\ud800",
    "\x00\x7f\n",
    "&",
]
texts = st.lists(st.sampled_from(LIKELY + SECRETS) | st.text(max_size=6), max_size=8).map("".join)
plain = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | texts
packable = st.recursive(
    plain | st.binary(max_size=20) | texts.map(lambda one: one.encode("utf-8", "replace")),
    lambda below: st.lists(below, max_size=4) | st.tuples(below),
    max_leaves=8,
)


class Bench:
    """A recorder with a ring of its own, with the part in C or without."""

    def __init__(self, directory: Path, with_it: bool, number: int, most: int = 1024) -> None:
        self.most = most
        scrub.check_with(native.Checker if with_it else None)
        self.scrubber = scrub.Scrubber(names=["farbe"])
        self.scrubber._key = b"the same for all"
        scrub.check_with(None)
        for secret in SECRETS:
            self.scrubber.learn(secret)
        self.path = directory / f"{number}.ring"
        make = (
            (
                lambda fd, capacity, epoch: native.Quick(
                    fd, capacity, epoch, 0, most, self.scrubber, *context.for_quick()
                )
            )
            if with_it
            else None
        )
        self.ring = Ring(str(self.path), 1 << 16, RECORD, make)

    def __enter__(self) -> Bench:
        recorder.options = Options({"inline_bytes": 4 * self.most})
        recorder.scrubber, recorder._ring, recorder.quick = self.scrubber, self.ring, self.ring.quick
        return self

    def __exit__(self, *_: object) -> None:
        recorder._ring = recorder.quick = None

    def records(self) -> list[tuple[str, bytes]]:
        """(what follows the lane, data) of each event, its own time and number taken away; every checksum is looked at."""
        raw = self.path.read_bytes()
        head, at, found = struct.unpack_from("<Q", raw, 40)[0], HEADER_BYTES, []
        while at < HEADER_BYTES + head:
            length, meta, crc, turned = RECORD_HEADER.unpack_from(raw, at)
            body = raw[at + 16 : at + 16 + length]
            assert zlib.crc32(body) == crc
            assert turned == length ^ 0xFFFFFFFF
            told = body[:meta].decode("ascii")
            json.loads(told)
            found.append((told.split(",", 3)[3], body[meta:]))
            at += 16 + length
        return found


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    """Makes a pair: in C, in Python."""
    numbers = iter(range(10**6))
    directory = tmp_path_factory.mktemp("rings")
    made = []

    def make(most: int = 1024) -> list[Bench]:
        for bench in made:
            bench.ring.forget()
            bench.path.unlink()
        made[:] = [Bench(directory, with_it, next(numbers), most) for with_it in (True, False)]
        return list(made)

    return make


@given(st.binary(max_size=400), st.integers(0, 300))
def test_the_checksum(data, more):
    data += bytes(more)
    assert native.crc32(data) == zlib.crc32(data)


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


@given(
    st.lists(
        st.sampled_from([*"0123456789", " ", "-", ".", "x", "_", "4111111111111111", "378282246310005"]),
        max_size=30,
    ).map("".join)
)
@example("0.4111111111111111")
@example("a 4111 1111-1111 1111 2222")
def test_no_card_is_overlooked(text):
    checker = native.Checker(("password",), tuple(SECRETS), True)
    if checker.clean(text):
        assert scrub.Scrubber().text(text) == text


@given(texts)
@example("to\u212aen=geheim12345")
@example("4111 1111-11111111 1x")
@example('{"password": "geheim"}')
@example("PASSWORD=geheim")
def test_a_text_that_is_said_to_be_clean_has_no_secret_in_it(text):
    checker = native.Checker(("password", "token", "key"), tuple(SECRETS), True)
    slow = scrub.Scrubber()
    for secret in SECRETS:
        slow.learn(secret)
    if checker.clean(text):
        assert slow.text(text) == text
    data = text.encode("utf-8", "surrogatepass")
    if checker.clean(data):
        assert slow.data(data) == data


def test_most_texts_are_said_to_be_clean():
    """Otherwise the test above would say nothing."""
    checker = native.Checker(("password",), tuple(SECRETS), True)
    assert all(
        map(
            checker.clean,
            ["", "SELECT a FROM b WHERE c = ?", "Grüße", "2026-11-21 23:59:59", "\U0001f600 12345"],
        )
    )
    assert not native.Checker((), ("\ud800abcdef",), True).clean("x")
    assert not native.Checker((), (), False).clean("x")


@pytest.mark.parametrize("secret", SECRETS)
def test_what_is_learned_is_looked_for_from_then_on(secret):
    scrub.check_with(native.Checker)
    scrubber = scrub.Scrubber()
    scrub.check_with(None)
    assert scrubber.text(f"a {secret} b") == f"a {secret} b"
    placeholder = scrubber.learn(secret)
    assert scrubber.text(f"a {secret} b") == f"a {placeholder} b"


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


headers = st.lists(
    st.tuples(
        st.sampled_from(["host", "Cookie", "x-farbe", "authorization", "accept", "x-api-key", "ü"]),
        texts.filter(str.isascii),
    ),
    max_size=4,
)


@settings(max_examples=25)
@example(
    [("host", "password"), ("authorization", "password")], "", b"", False
)  # found: learned of a later one
@example(
    [("host", "passwordBearer abcdefgh1")], "Bearer abcdefgh1", b"", False
)  # found: learned of the target
@given(
    headers,
    texts,
    st.binary(max_size=40) | texts.map(lambda one: one.encode("utf-8", "replace")),
    st.booleans(),
)
def test_a_request_is_told_the_same(benches, pairs, target, body, as_bytes):
    raw = (
        tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
        if as_bytes
        else tuple(pairs)
    )
    told = []
    for bench in benches():
        with bench:
            recorder.requests = 0
            about = handling.begin("asgi", "GET", target, ["::1", 5], [], raw)
            request = context.here()
            about.status, about.raw_headers = 200, raw
            about.sent(body)
            about.ended()
            assert [name for name, _ in request.about["headers"]] == [name for name, _ in pairs]
        told.append(
            [(text.split('"ns":')[0], text.split(',"status"')[-1], data) for text, data in bench.records()]
        )
    assert told[0] == told[1]


HEADERS = st.sampled_from(
    [b"authorization", b"cookie", b"host", b"Basic aGVpbjpnZWhlaW0xMjM=", b"a=bbbbbbbb; c=d"]
)
PATHS = st.binary(max_size=8) | texts.map(lambda one: one.encode("utf-8", "replace")) | st.just(b"/orders/7")
CLIENTS = st.sampled_from([None, ("::1", 5), ["::1", 5], ("h", None), ("h",), (), ["h", 1, 2], "no"])
MISSING = "raw_path", "query_string", "client", "headers", "method"


@settings(max_examples=100)
@example(b"/a", b"", ("::1", 5), [(b"host", b"h")], "GET", [], "http")
@example(b"/a", b"token=abc", None, [[b"host", b"h"]], "GET", [], "http")
@example(b"/hgeheim123", b"", None, [(b"authorization", b"Basic aGVpbjpoZ2VoZWltMTIz")], "GET", [], "http")
@example(b"/" * 1100, b"", None, [], "GET", [], "http")
@example(b"/4111 1111-1111", b"1111", None, [], "GET", [], "http")  # a card where both are together
@given(
    PATHS,
    PATHS,
    CLIENTS,
    st.lists(st.tuples(PATHS | HEADERS, PATHS | HEADERS) | st.tuples(PATHS, PATHS).map(list), max_size=3),
    texts,
    st.lists(st.sampled_from(MISSING), max_size=2),
    st.sampled_from(["http", "websocket"]),
)
def test_a_request_that_a_server_hands_over_is_told_the_same(
    benches, path, query, client, pairs, method, missing, kind
):
    """GIVEN a scope of ASGI, as servers make it or not
    WHEN a request begins with it, and the service changes the scope
    THEN its event, and what is known of it later, are the same with the part in C and without.
    """
    told = []
    for bench in benches():
        scope = {"type": kind, "path": "/\xe9", "raw_path": path, "query_string": query, "client": client}
        scope |= {"headers": list(pairs), "method": method}
        for name in missing:
            scope.pop(name, None)
        with bench:
            recorder.requests = 0
            try:
                for _ in range(2):  # headers with secrets are remembered
                    begun = contextvars.copy_context().run(_begin_and_end, scope)
            except Exception as fault:
                told.append(type(fault))
                continue
            scope["headers"], scope["raw_path"] = [], b"/another"
            if isinstance(client, list):
                client = [*client]
                scope.get("client", []).append("changed")
            told.append(
                [
                    (text.split('"ns":')[0], text.split(',"status"')[-1], data)
                    for text, data in bench.records()
                ]
                + [begun.about]
            )
    assert told[0] == told[1]


def _begin_and_end(scope):
    begun = asgi._begin(scope)
    assert context.here() is begun
    begun.status, begun.raw_headers = 200, tuple(scope.get("headers", ()))
    begun.ended()
    return begun


MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["http.response.start", "http.response.body", "http.request", "other", 5]),
        "status": st.sampled_from([200, 1 << 70, "404", True, None]),
        "headers": st.lists(st.tuples(PATHS | HEADERS, PATHS | HEADERS), max_size=2)
        | st.sampled_from([(), 5]),
        "body": PATHS | st.sampled_from([b"", None, bytearray(b"a"), "text", b"x" * 5000]),
        "more_body": st.booleans(),
    },
)


@settings(max_examples=100)
@example([{"type": "http.response.start", "status": 200, "headers": []}], [], False)
@given(st.lists(MESSAGES, max_size=4), st.lists(MESSAGES, max_size=2), st.booleans())
def test_messages_of_an_application_are_told_the_same(benches, sent, received, is_failing):
    """GIVEN messages as an application may send and receive them, in whatever order
    WHEN it does so for a request, with the part in C and without
    THEN the same is recorded, and the server has the same messages.
    """
    told = []
    for bench in benches():
        taken = []

        async def send(message, taken=taken):
            taken.append(message)

        async def receive(messages=[*received]):  # noqa: B006 - one for each
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def app(_scope, receive, send):
            for _ in range(len(received)):
                await receive()
            for message in sent:
                await send(message)
            if is_failing:
                raise GeneratorExit

        scope = {"type": "http", "raw_path": b"/a", "query_string": b"", "method": "GET", "headers": []}
        with bench:
            recorder.requests = 0
            ended = contextvars.copy_context().run(_outcome_of, asgi.RecordedAsgi(app)(scope, receive, send))
            is_off = recorder._ring is None
        records = [(re.sub('"ns":[0-9]+', "", text), data) for text, data in bench.records()]
        told.append((ended, is_off, taken, records))
    assert told[0] == told[1]


def _outcome_of(steps):
    try:
        steps.send(None)
    except (StopIteration, GeneratorExit) as ended:
        return type(ended)
    raise AssertionError("it has to wait")


@settings(max_examples=50)
@example("a\ud800", ("orders", "WARNING", "/a.py", 7), True, None)
@example("plain", ("orders", "WARNING", "/\\ä.py", 7), True, None)
@example("plain", ("orders", "WARNING", "/a.py", 1 << 70), True, None)
@given(
    texts | texts.map(lambda one: one * 2000),
    st.tuples(texts, texts, texts, st.integers(-(1 << 70), 1 << 70)) | st.tuples(plain, plain, plain, plain),
    st.booleans(),
    st.sampled_from([None, False, (ValueError, None, None), (None, None, None)]),
)
def test_a_log_record_is_told_the_same(benches, text, parts, is_made, raised):
    record = logging.LogRecord(parts[0], 30, parts[2], parts[3], text, (), raised)
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


def test_what_a_signal_raises_while_a_checker_is_made_is_passed_on(benches):
    """As everywhere in the recorder (guard.py); what the recorder's own code raises is not."""
    raised = KeyboardInterrupt()

    def make_checker():
        raise raised

    with benches()[0] as bench:
        quickly, asked = bench.ring.quick, ('{"a":1', ',"parameters":', (1, "x"))
        bench.scrubber.checker, bench.scrubber.make_checker = None, make_checker
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


GARBAGE = """
import gc, mmap, os, sys, tempfile
from relive_recorder import context, quick, scrub
from relive_recorder.ring import HEADER_BYTES, Ring
native = quick.module
scrub.check_with(native.Checker)
scrubber = scrub.Scrubber()
scrubber.make_checker()
make = lambda fd, capacity, epoch: native.Quick(fd, capacity, epoch, 0, 1024, scrubber, *context.for_quick())
writer = Ring(os.path.join(tempfile.mkdtemp(), "ring"), 1 << 16, 1, make).quick

class Garbage:
    def __init__(self, after):
        self.itself, self.after = self, after

    def __del__(self):
        if self.after:
            Garbage(self.after - 1)
        else:
            headers[0].clear()

# A collection comes with each second object: at one of these it is the error that a name which is no UTF-8 makes.
for after in range(24):
    headers = [["na\\udcffme", "a value of its own"], ["another", "value"]]
    given = "asgi", "GET", "/", None, headers, 3
    gc.disable()
    gc.collect()
    Garbage(after // 2)
    gc.set_threshold(1)
    gc.enable()
    further = {1} if after % 2 else None
    writer.started(*given)
    gc.set_threshold(700)
print("whole")
"""


@each_python
def test_a_finalizer_that_runs_in_between_may_take_away_what_is_written(run_recorded, python):
    ran = run_recorded(GARBAGE, python)
    assert (ran.status, ran.out.split()) == (0, ["whole"])


@pytest.mark.parametrize(
    "fields", [{"a": math.nan}, {1: 2}, {"a": {1}}, {"a": 1 << 64}, {"a": "\ud800"}], ids=repr
)
def test_what_is_not_plain_gets_no_number_and_leaves_nothing(benches, fields):
    with benches()[0] as bench:
        assert bench.ring.quick.emit("note", fields, b"", None) is None
        assert (bench.ring.quick.last(), bench.records()) == (0, [])


def test_a_ring_goes_round_and_longer_records_are_left_out(tmp_path):
    scrubber = scrub.Scrubber()

    def made(fd, capacity, epoch):
        return native.Quick(fd, capacity, epoch, 0, 64, scrubber, *context.for_quick())

    for name, make in (("c", made), ("python", None)):
        ring = Ring(str(tmp_path / name), 200, RECORD, make)
        said = [ring.write(number, b"[%d]" % number, b"x" * (number * 37 % 190)) for number in range(40)]
        assert said == [16 + len(b"[%d]" % number) + number * 37 % 190 <= 200 for number in range(40)]
        ring.forget()
    same = [(tmp_path / name).read_bytes() for name in ("c", "python")]
    assert same[0][40:56] + same[0][4096:] == same[1][40:56] + same[1][4096:]


def test_in_the_file_of_a_branch_its_first_record_goes_to_the_beginning(benches):
    with benches()[0] as bench:
        recorder.emit("note", {"about": "before"})
        bench.ring.words[EPOCH] += 2
        assert bench.ring.quick.emit("note", {}, b"", None) is None  # Python has to see where it is
        bench.ring.adopt()
        recorder.emit("note", {"about": "after"})
        assert ["after" in text for text, _ in bench.records()] == [True]


def test_after_it_is_forgotten_nothing_is_written(benches):
    with benches()[0] as bench:
        writer = bench.ring.quick
        bench.ring.forget()
        assert writer.emit("note", {}, b"", None) is None
        assert writer.put(1, b"", b"") is False
        with bench.path.open("r+b") as file:
            assert mmap.mmap(file.fileno(), 0)[40:48] == bytes(8)


SAME = """
import asyncio, gc, io, json, logging, os, sqlite3, sys, threading, time, warnings
warnings.simplefilter("ignore")  # of coroutines that are never awaited
sys.path.insert(0, os.path.dirname(__file__))
from relive_recorder.recorder import recorder
from relive_recorder.servers import asgi, wsgi
assert (recorder.quick is not None) is QUICK, "quick"
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE t (a, b, c)")
smile = "\\u00e9\\ud83d\\ude00".encode("utf-16", "surrogatepass").decode("utf-16")
for row in [(1, "x", None), (2.5, "pass=geheim", b"\\xff"), (1 << 40, smile, b"ok")] * 3:
    db.execute("INSERT INTO t VALUES (?, ?, ?)", row)
print(db.execute("SELECT * FROM t").fetchall() == list(db.execute("SELECT * FROM t")))
cursor = db.execute("SELECT a FROM t LIMIT 3")
print(cursor.fetchone(), cursor.fetchmany(1), cursor.fetchone(), cursor.fetchone())
for given in (("SELECT nothing",), ("SELECT ?", (1, 2)), (5,), ()):
    for _ in range(2):
        try:
            db.execute(*given)
        except (sqlite3.Error, TypeError, ValueError) as error:
            print(type(error).__name__)
db.execute("SELECT :a", {"a": 1}).fetchall()
db.commit()
async def app(scope, receive, send):
    logging.getLogger("a").warning("hello %s", scope["path"])
    await asyncio.gather(*[asyncio.create_task(work(n)) for n in range(3)])
    await receive()
    headers = [(b"a", b"b"), (b"set-cookie", b"id=0123456789")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"one" if scope["path"] == "/1" else b"\\xff\\x00"})
    if scope["path"] == "/2":
        raise KeyError("no")
async def work(n):
    time.time(); db.execute("SELECT ?", (n,)).fetchall()
async def ask(path, *headers):
    sent = []
    async def receive():
        return {"type": "http.request", "body": b"body", "more_body": False}
    async def send(message):
        sent.append(message["type"])
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": list(headers)}
    if headers:  # as servers make it
        scope["query_string"] = b"a=b" if path == "/2" else b""
    scope["client"] = ["h", 1]
    try:
        await asgi.RecordedAsgi(app)(scope, receive, send)
    except KeyError:
        print("failed")
    print(sent)
for path, headers in (("/1", [(b"host", b"h")]), ("/2", [(b"cookie", b"a=b; c=dddddddd")]), ("/1?token=abcdef123", [])):
    asyncio.run(ask(path, *headers))
class Pause:
    def __await__(self):
        return (yield "paused")
async def odd(scope, receive, send):
    path, start = scope["path"], {"type": "http.response.start", "status": 201, "headers": [[b"a", b"b"]]}
    if path == "/pieces":
        await send(start)
    for body in (b"one", b"", bytearray(b"two"), b"three") if path in ("/pieces", "/early") else ():
        await send({"type": "http.response.body", "body": body, "more_body": True})
    if path == "/late":
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})
        await send(start)
    if path == "/strange":
        await send({"type": "http.response.push"})
        await send(type("Own", (dict,), {})(start))
    if path == "/nested":
        await asgi.RecordedAsgi(odd)({"type": "http", "path": "/pieces"}, receive, send)
    while path == "/pauses":
        print(path, await Pause())
    return "nobody's business"
class Made:
    def __init__(self, *given):
        self.given = given
    def __await__(self):
        return odd(*self.given).__await__()
async def receive():
    return {"type": "http.disconnect"}
async def send(message):
    time.monotonic_ns()
def steps(path, app=odd, kind="http"):
    scope = {"type": kind, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
    return asgi.RecordedAsgi(app)(scope, receive, send)
def tried(function, *given):
    try:
        print(function.__name__, function(*given))
    except BaseException as raised:
        print(function.__name__, repr(raised))
for path in ("/pieces", "/early", "/late", "/strange", "/nested"):
    for app in (odd, Made):
        print(path, asyncio.run(asyncio.wait_for(steps(path, app), 60)))
for app in (lambda *_: None, lambda *_: 1 / 0, lambda: None):
    tried(steps("/", app).send, None)
asyncio.run(steps("/", kind="lifespan"))
asyncio.run(steps("/", kind="websocket"))
for ending in ("throw", "throw_before", "close", "close_before", "lost", "lost_before"):
    one = steps("/pauses")
    assert hasattr(one, "__await__") and one.cr_await is None
    if not ending.endswith("before"):
        tried(one.send, None)
        tried(one.send, "given")
        print(one.cr_await is not None)
    if ending.startswith("throw"):
        tried(one.throw, ValueError("thrown"))
    elif ending.startswith("close"):
        tried(one.close)
        tried(one.close)
    else:
        ring = [one]
        ring.append(ring)
        del one, ring
        gc.collect()
        continue
    tried(one.send, None)
asyncio.run(asyncio.wait_for(steps("/"), 60))
def shop(environ, start):
    start("200 OK", [("A", "b")])
    return [b"text", b"more"]
environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/w", "HTTP_X_A": "b", "HTTP_COOKIE": "a=b", "REMOTE_ADDR": "h"}
print(wsgi.RecordedWsgi(shop)(environ, lambda *_: None))
class File:
    def __init__(self, *_):
        self.closed = self.seek = 0
    def __iter__(self):
        return iter([b"of a file"])
class Text(str):
    pass
class Closing:
    def __init__(self, pieces, error=None):
        self.pieces, self.error, self.other = iter(pieces), error, "mine"
    def __iter__(self):
        time.monotonic_ns()
        return self
    def __next__(self):
        return next(self.pieces)
    def close(self):
        print("closed")
        if self.error:
            raise self.error
def raising():
    yield b"one"
    raise ValueError("in the middle")
def counter(environ, start):
    start("204 No Content", [("Set-Cookie", "id=0123456789")])
    start("500 No", [], None)
    return ()
def bad(environ, start):
    start("200 OK", [("A", "b")])
    raise OSError("no")
answers = {"list": [b"all"], "tuple": (b"", b"all", b"more"), "array": [bytearray(b"x")], "none": None}
answers.update(number=5, file=File(), one=Closing([b"one"]), several=Closing([b"", b"one", b"two", b""]), empty=Closing([]))
answers.update(unclosable=Closing([b"a"], KeyError("close")))
answers.update(generator=(piece for piece in [b"a", b"b"]), raises=raising())
starts = (("200 OK", [("A", "b"), ("Set-Cookie", "c=123456789")]), ("404", []),
    (Text("201 Text"), [(Text("A"), "b")]),
    ("2000 many", []), ("20", []), ("200 OK", (("A", "b"),)), ("200 OK", [["A", "b"]]), ("200 OK", [("A", 5)]))
def wsgi_steps(app, environ, start=lambda *_: "write"):
    try:
        answer = wsgi.RecordedWsgi(app)(environ, start)
        print(type(answer).__name__ in ("list", "tuple", "File"), getattr(answer, "other", None), hasattr(answer, "nothing"))
        for _ in range(2):
            print(*answer)
        print(answer.close())
    except Exception as error:
        print(type(error).__name__)
served = {"REQUEST_METHOD": "GET", "RAW_URI": "/w?token=secret123", "REMOTE_ADDR": "::1", "REMOTE_PORT": "80", "HTTP_X_A": "b"}
served.update({"CONTENT_LENGTH": "", "CONTENT_TYPE": "", "HTTP_COOKIE": "a=b; c=ddddddddd", "HTTP_EMPTY": "", "HTTP_": "no"})
served.update({"wsgi.file_wrapper": File, "os": "x"})
for name, answer in answers.items():
    def app(environ, start, answer=answer, name=name):
        print(name, environ is served, start("200 OK", [("A", name)]), hasattr(start, "__wrapped__"), callable(start))
        return answer
    wsgi_steps(app, served)
for status, headers in starts:
    wsgi_steps(lambda environ, start: [start(status, headers) and b"x"], served)
for app in (counter, bad, None, lambda *_: wsgi.RecordedWsgi(shop)(*_)):
    wsgi_steps(app, served)
for changes in ({"REMOTE_PORT": 81}, {"REMOTE_PORT": -1}, {"REMOTE_PORT": "8x"}, {"REMOTE_PORT": None}, {"REMOTE_ADDR": ""},
                {"RAW_URI": ""}, {"REQUEST_METHOD": Text("GET")}, {"HTTP_X_A": 5},
                {Text("HTTP_B"): "c"}, {"HTTP_" + "X" * 300: "long"}, {"HTTP_TRANSFER_ENCODING": "", "CONTENT_LENGTH": None},
                {"wsgi.input": io.BytesIO(b"body"), "CONTENT_LENGTH": "4"}):
    changed = {**served, **changes}
    changed.setdefault("REQUEST_URI", "/other")
    wsgi_steps(lambda environ, start: [start("200 OK", []) and environ.get("wsgi.input", io.BytesIO()).read()], changed)
for number in range(300):
    wsgi_steps(shop, {**served, "HTTP_N%d" % number: "n"})
wsgi_steps(shop, type("Own", (dict,), {})(served))
thread = threading.Thread(target=lambda: time.monotonic())
thread.start(); thread.join()
if os.fork() == 0:
    time.time(); os._exit(0)
os.wait()
print(time.time.__name__, time.time.__module__, type(time.time()).__name__)
"""
READINGS = """
import os, random, time, sys
from relive_recorder.recorder import recorder
assert (recorder.quick is not None) is QUICK
random.seed(5)
print([random.random(), random.randint(1, 9), random.getrandbits(80), random.gauss(0, 1), random.uniform(1, 2)])
print([len(os.urandom(n)) for n in (0, 1, 2, 3, 4097)])
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
    getattr(time, name)()
for wrong in (lambda: random.randint("a", 1), lambda: os.urandom(-1), lambda: time.time(1)):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
print(os.environ.get("RELIVE_NOT_SET"), os.getenv("PYTHONPATH") == os.environ["PYTHONPATH"], "HOME" in os.environ)
for small in (open(sys.argv[0] + ".ini", "w"), open(sys.argv[0] + ".ini")):
    small.close()
"""


@each_python
def test_readings_are_recorded_the_same(run_recorded, tmp_path, python):
    told = []
    for with_it in (True, False):
        for ring in (tmp_path / "rings").glob("*"):
            ring.unlink()
        ran = run_recorded(READINGS.replace("QUICK", str(with_it)), python, quick=with_it)
        assert (ran.status, ran.err) == (0, "")
        told.append(
            (ran.out, [_reading_of(event) for event in ran.events if event.kind != "process-started"])
        )
    assert told[0] == told[1]
    assert len(told[0][1]) == 19


FRAMELESS = """
import _thread, atexit, os, pickle, random, sys, time, uuid
from relive_recorder.recorder import recorder
assert (recorder.quick is not None) is QUICK
for name in dir(random) + ["os.urandom", "time.time", "time.monotonic_ns", "uuid.uuid4"]:
    module, _, name = name.rpartition(".")
    module = sys.modules[module or "random"]
    found = getattr(module, name)
    if callable(found) and not isinstance(found, type) and (module is not random or name in random.__all__):
        again = pickle.loads(pickle.dumps(found))
        if again is not found and name not in ("getstate", "setstate", "seed", "binomialvariate"):
            print("another when it was pickled:", name)
given = {"urandom": (4,), "choice": ([1, 2],), "shuffle": ([],), "seed": ()}
environ = type(os.environ).__getitem__
threads = len(os.listdir("/proc/self/task"))
for function in (time.time, time.localtime, os.urandom, random.random, random.choice, random.shuffle, random.seed):
    _thread.start_new_thread(function, given.get(function.__name__, ()))
    atexit.register(function, *given.get(function.__name__, ()))
atexit.register(environ, os.environ, "HOME")
# A thread that begins when the interpreter has ended is a crash of CPython 3.11 (_PyThreadState_SetCurrent). The system
# counts those that have not begun, which _thread._count() does not.
for _ in range(6000):
    if len(os.listdir("/proc/self/task")) == threads:
        break
    time.sleep(0.01)
print("before the end", flush=True)
"""


@pytest.mark.parametrize("with_it", [True, False], ids=["c", "python"])
@each_python
def test_what_has_the_place_of_a_function_can_be_pickled_and_called_by_no_python_code(
    run_recorded, python, with_it
):
    """A thread or callback of C has no Python frame; processes of a pool are given functions by their names."""
    ran = run_recorded(FRAMELESS.replace("QUICK", str(with_it)), python, quick=with_it)
    assert (ran.status, ran.out, ran.err) == (0, "before the end\n", "")


@each_python
def test_no_module_is_named_by_a_descriptor_that_is_the_services(run_recorded, python):
    """GIVEN a program that reads the files of all modules, as Hypothesis does; THEN it reads no pipe that has that number now."""
    ran = run_recorded(
        """
import sys
module = sys.modules["relive_recorder._quick"]
for name in (module.__file__, module.__spec__.origin, module.__loader__.path):
    print(name.rpartition("/")[2], open(name, "rb").read(4))
""",
        python,
    )
    assert (ran.status, ran.out, ran.err) == (0, "_quick.abi3.so b'\\x7fELF'\n" * 3, "")


@pytest.mark.parametrize("with_it", [True, False], ids=["c", "python"])
@each_python
def test_who_writes_into_built_in_functions_finds_them(run_recorded, tmp_path, python, with_it):
    """GIVEN time-machine's part in C, which takes what it finds for built-in functions; THEN it finds no object of another form."""
    (tmp_path / "_time_machine.py").write_text("import time; first = type(time.time), type(time.gmtime)")
    told = run_recorded(
        f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import datetime, time
recorded = time.localtime, time.strftime, time.gmtime
import _time_machine
names = "time time_ns monotonic monotonic_ns perf_counter localtime gmtime strftime".split()
assert _time_machine.first == (type(len), type(len))
found = [getattr(time, name) for name in names] + [datetime.datetime.now, datetime.datetime.utcnow]
print([one for one in found if type(one) is not type(len)], time.time in recorded, recorded[0] is time.localtime)
""",
        python,
        quick=with_it,
    )
    assert (told.status, told.out, told.err) == (0, "[] False False\n", "")


# Where an interpreter of its own begins to record, too, it has a recorder of its own.
SECOND = """
import os, threading, time
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
def work():
    for _ in range(100):
        time.time(), os.urandom(2), open(os.devnull).close()
def works():
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
works()
other = interpreters.create()
interpreters.run_string(other, "import os, time; time.time(); os.urandom(2); open(os.devnull).close(); print('there', flush=True)")
works()
interpreters.destroy(other)
works()
from relive_recorder.recorder import recorder
print(recorder.quick is not None, flush=True)
os._exit(0)  # CPython 3.12.1 by itself crashes at the end of a program that had a second interpreter (gh-116510)
"""


@each_python
def test_another_interpreter_of_the_process_gets_none_of_it(run_recorded, python):
    ran = run_recorded(SECOND, python)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == ["there", "True"]


def _reading_of(event):
    value = event.fields.get("value")
    source = event.fields.get("source", "")
    if source.startswith("time.") or source == "os.urandom":  # not the same ones
        value = type(value), len(str(value)) if source == "os.urandom" else 0
    return (
        event.kind,
        source,
        event.fields["lane"],
        event.fields.get("name"),
        value,
        event.fields.get("asked"),
    )


# What differs between two runs of one program: times, and the key by which secrets are named.
_PASSING = {
    "ns",
    "body_ns",
    "own_seq",
    "thread",
    "argv",
    "quick",
    "why_not_quick",
    "value",
    "forked_from",
    "throw",
    "volatile",
    "fingerprint",
}


@each_python
def test_a_whole_service_is_recorded_the_same(run_recorded, tmp_path, python):
    told = []
    for with_it in (True, False):
        for ring in (tmp_path / "rings").glob("*"):
            ring.unlink()
        ran = run_recorded(SAME.replace("QUICK", str(with_it)), python, quick=with_it)
        assert (ran.status, ran.err.count("relive:")) == (0, 0), ran.err
        shown = [
            (
                event.kind,
                event.request,
                event.fields["lane"],
                _masked({name: value for name, value in event.fields.items() if name not in _PASSING}),
                event.data if event.kind != "failure" else b"",
            )
            for event in ran.events
        ]
        told.append((ran.out, shown))
    assert told[0][0] == told[1][0]
    assert told[0][1] == told[1][1]
    assert len(told[0][1]) > 60


def _masked(value: object) -> str:
    return re.sub("<secret:[0-9a-f]{8}>|0x[0-9a-f]+", "<>", json.dumps(value, sort_keys=True, default=str))


def test_it_says_whether_it_is_at_work_and_why_not(run_recorded, tmp_path):
    with_it = run_recorded("pass").events[0].fields
    assert (with_it["quick"], "why_not_quick" in with_it) == (True, False)
    for ring in (tmp_path / "rings").glob("*"):
        ring.unlink()
    without = run_recorded("pass", quick=False).events[0].fields
    assert (without["quick"], without["why_not_quick"]) == (False, "nobody asked for it")


@pytest.mark.parametrize("content", [b"\x7fELF no library", None])
def test_a_library_that_cannot_be_loaded_is_no_error(tmp_path, content):
    if content is not None:
        (tmp_path / "_quick.abi3.so").write_bytes(content)
    program = (
        f"from relive_recorder import quick; quick.__file__ = {str(tmp_path / 'quick.py')!r}\n"
        "print(quick.load(), quick.why_not)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(INPROCESS)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("None ImportError: " if content else "None FileNotFoundError: ")
    assert done.stderr == ""
