"""Requests are told the same by the part in C and by the part in Python."""

from __future__ import annotations

import contextvars
import inspect
import re
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .conftest import INPROCESS
from .quick_bench import pairs_in, texts

sys.path.insert(0, str(INPROCESS))
from relive_recorder import context, scrub
from relive_recorder.recorder import recorder
from relive_recorder.servers import asgi, handling, wsgi

sys.path.remove(str(INPROCESS))


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    return pairs_in(tmp_path_factory.mktemp("rings"))


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


# Of a name the part in C remembers the value that it had last.
AGAIN = st.lists(
    st.tuples(
        st.sampled_from([b"accept", b"host", b"x", b"", b"x-" + b"n" * 250]),
        st.sampled_from([b"", b"a", b"b", b'"', b"geheim12", b"hunter2-hunter2", b"v" * 230, b"\xe9"]),
    ),
    max_size=3,
).map(tuple)


@settings(max_examples=25)
@example([((b"accept", b"geheim12"),)] * 3, 1)  # remembered as clean, and then it is learned
@example([((b"accept", b"a"),), ((b"accept", b"b"),), ((b"accept", b"a"),)], 3)
@example([((b"x", b"ab"),), ((b"xa", b"b"),)] * 2, 4)  # the same letters
@given(st.lists(AGAIN, max_size=6), st.integers(0, 6))
def test_headers_that_come_again_are_told_the_same(benches, requests, learned_at):
    told = []
    for bench in benches():
        with bench:
            recorder.requests = 0
            for number, raw in enumerate(requests):
                if number == learned_at:
                    bench.scrubber.learn("geheim12")
                about = handling.begin("asgi", "GET", "/", ["::1", 5], [], raw)
                about.status, about.raw_headers = 200, raw
                about.ended()
        told.append([re.sub('"ns":[0-9]+', "", text) for text, _ in bench.records()])
    assert told[0] == told[1] and len(told[0]) == 2 * len(requests)
    assert not any("geheim12" in text for text in told[0][2 * learned_at :])


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
@example([], [{"type": "http.request", "body": b"x" * 5000}], False)  # goes into a file
@example([{"type": "http.response.start", "status": "no", "headers": []}], [], False)
@example([{"type": "http.response.start", "status": 200, "headers": 5}], [], False)
@example([{"type": "http.response.start", "status": 200, "headers": [(b"a",)]}], [], False)
@example([None, {"type": "http.response.body", "body": "text"}], [], False)
@given(st.lists(MESSAGES, max_size=4), st.lists(MESSAGES, max_size=2), st.booleans())
def test_messages_of_an_application_are_told_the_same(benches, sent, received, is_failing):
    """GIVEN messages as an application may send and receive them, in whatever order
    WHEN it does so for a request, with the part in C and without
    THEN the same is recorded, and the server has the same messages; what the server will refuse switches nothing off.
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
        records = [(re.sub('"ns":[0-9]+', '"ns":0', text), data) for text, data in bench.records()]
        told.append((ended, is_off, taken, records))
    assert received or not told[0][1]
    assert told[0] == told[1]


@pytest.mark.parametrize("fails", ["header", "note", "end"])
def test_what_fails_in_the_recorder_is_none_of_the_services_business(benches, monkeypatch, fails):
    """GIVEN a recorder of which a part fails
    WHEN an application of ASGI and one of WSGI answer
    THEN the servers have their answers, and nothing is recorded any more.
    """
    secret, messages = "Basic aGVpbjpnZWhlaW0xMjM=", []
    start = {"type": "http.response.start", "status": 200, "headers": []}

    async def app(_scope, _receive, send):
        await send(start)
        await send(
            start if fails == "note" else {"type": "http.response.body", "body": b"token=" * (fails == "end")}
        )

    async def send(message):
        messages.append(message["type"])

    def shop(_environ, start):
        start(status="200 OK" if fails != "note" else "0200", headers=[])
        return iter([b"token=" * (fails == "end")])

    def fail(*_):
        raise ArithmeticError

    headers = [(b"authorization", secret.encode())]
    scope = {"type": "http", "raw_path": b"/a", "query_string": b"", "method": "GET", "headers": headers}
    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1", "HTTP_AUTHORIZATION": secret}
    if fails == "header":
        monkeypatch.setattr(scrub.Scrubber, "header", fail)
    elif fails == "end":
        monkeypatch.setattr(handling.Handling, "ended", fail)
    else:
        scope["headers"] = []
        for server in asgi, wsgi:
            monkeypatch.setattr(server, "int", fail, raising=False)
    bench = benches()[0]
    for ask in (
        lambda: _outcome_of(asgi.RecordedAsgi(app)(scope, None, send)),
        lambda: list(wsgi.RecordedWsgi(shop)(environ, lambda **_: None)),
    ):
        with bench:
            assert contextvars.copy_context().run(ask) in (StopIteration, [b"token=" * (fails == "end")])
            assert recorder._ring is None
        bench = benches()[0]
    assert messages[0] == "http.response.start" and len(messages) == 2


def _outcome_of(steps):
    try:
        steps.send(None)
    except (StopIteration, GeneratorExit) as ended:
        return type(ended)
    raise AssertionError("it has to wait")


@pytest.mark.parametrize(
    "headers",
    [lambda: iter([(b"a", b"b")]), lambda: zip([b"a"], [b"b"], strict=True), lambda: [(b"a",)], lambda: None],
    ids=["iterator", "zip", "no pair", "none"],
)
def test_headers_come_to_the_server_as_the_application_gave_them(benches, headers):
    """Also those that can be read only once, and those that the server will refuse; nothing is switched off by them."""
    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1"}
    scope = {"type": "http", "raw_path": b"/a", "query_string": b"", "method": "GET", "headers": []}
    for bench in benches():
        came = []

        async def app(_scope, _receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": headers()})

        async def send(message, came=came):
            came.append(message["headers"])

        def start(_status, given, came=came):
            came.append(given)

        with bench:
            contextvars.copy_context().run(_outcome_of, asgi.RecordedAsgi(app)(scope, None, send))
            shop = wsgi.RecordedWsgi(
                lambda _environ, start: start("2" * 5000, []) or start("200 OK", headers()) or []
            )
            contextvars.copy_context().run(shop, environ, start)
            assert recorder._ring is not None
        assert came.pop(1) == []
        assert [one if one is None else list(one) for one in came] == [
            one and list(one) for one in [headers(), headers()]
        ]


def test_many_names_of_headers_keep_no_request_from_its_end(benches):
    """More than are remembered: a client chooses them, and wsgiref's environment has the process's variables."""
    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1"}
    told = []
    for bench in benches():
        with bench:
            recorder.requests = 0
            for count in (200, 253, 254, 300):
                many = {**environ, **{f"HTTP_X{number}": "v" for number in range(count)}}
                app = wsgi.RecordedWsgi(lambda _environ, start: start("200 OK", []) or [b"x"])
                assert contextvars.copy_context().run(app, many, lambda *_: None) == [b"x"]
        told.append([(re.sub('"ns":[0-9]+', '"ns":0', text), data) for text, data in bench.records()])
    assert told[0] == told[1] and len(told[0]) == 8


def test_a_signals_exception_while_a_request_begins_is_passed_on(benches, monkeypatch):
    def stop(_key):
        raise KeyboardInterrupt

    monkeypatch.setattr(wsgi._header_name, "__code__", stop.__code__)
    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1", "HTTP_NEVER_SEEN": "v"}
    for bench in benches():
        with bench, pytest.raises(KeyboardInterrupt):
            contextvars.copy_context().run(wsgi.RecordedWsgi(None), environ, None)


def test_an_answer_may_begin_with_exc_info_by_name(benches):
    for bench in benches():
        with bench:
            app = wsgi.RecordedWsgi(lambda _environ, start: [start("200 OK", [], exc_info=None)])
            environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1"}
            asked = contextvars.copy_context().run(app, environ, lambda *_, **named: b"%d" % len(named))
        assert asked == [b"1"]


@pytest.mark.parametrize("held", ["dropped", "kept", "begun", "closed elsewhere"])
def test_an_answer_that_its_server_leaves_keeps_no_request_from_its_end(benches, held):
    """GIVEN a server that drops an answer, or keeps it without closing it, or closes it in another thread
    WHEN its thread goes on with the next request
    THEN each is recorded as one of its own, and none is left in the thread's context; an answer that the server
    may still ask for more of is marked, since that will not be recorded.
    """
    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1"}
    app = wsgi.RecordedWsgi(lambda _environ, start: start("200 OK", []) or iter([b"a", b"b"]))

    def serve():
        left = app(environ, lambda *_: None)
        if held == "dropped":
            left = None
        elif held == "closed elsewhere":
            contextvars.copy_context().run(left.close)
        elif held == "begun":
            assert next(left) == b"a"
        # What it does while a piece is made is a part of it.
        assert list(wsgi.RecordedWsgi(lambda *given: iter(app(*given)))(environ, lambda *_: None)) == [
            b"a",
            b"b",
        ]
        assert not context.here().number
        if held in ("kept", "begun"):
            assert b"".join(left) == (b"ab" if held == "kept" else b"b")
        return left

    told = []
    for bench in benches():
        with bench:
            recorder.requests = 0
            contextvars.copy_context().run(serve)
        told.append([(re.sub('"ns":[0-9]+', '"ns":0', text), data) for text, data in bench.records()])
    assert told[0] == told[1]
    ends = [(data, '"left":true' in text) for text, data in told[0] if "handling-ended" in text]
    assert ends == [(b"a" * (held == "begun"), held in ("kept", "begun")), (b"ab", False)]


@pytest.mark.parametrize(
    ("status", "headers", "pieces"),
    [
        ("none", [], [b"a"]),
        (None, None, ["text"]),
        ("200 OK", [], [5, b"a", "text"]),
        ("200 OK", [], iter(["text"])),
    ],
)
def test_an_answer_that_no_server_takes_is_its_requests_own_business(benches, status, headers, pieces):
    pieces = list(pieces)

    def app(_environ, start):
        start(status, headers)
        return iter(pieces)

    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1"}
    told = []
    for bench in benches():
        with bench:
            recorder.requests = 0
            assert (
                contextvars.copy_context().run(lambda: list(wsgi.RecordedWsgi(app)(environ, lambda *_: None)))
                == pieces
            )
            assert recorder.mode()
        told.append([(re.sub('"ns":[0-9]+', '"ns":0', text), data) for text, data in bench.records()])
    assert told[0] == told[1] and len(told[0]) == 2


def test_what_is_sent_by_write_is_a_part_of_the_answer(benches):
    def app(_environ, start):
        write = start("200 OK", [])
        write(b"by ")
        write(b"write ")
        return [b"and by return"]

    environ = {"REQUEST_METHOD": "GET", "RAW_URI": "/a", "REMOTE_ADDR": "::1"}
    told = []
    for bench in benches():
        sent = []
        with bench:
            recorder.requests = 0
            contextvars.copy_context().run(wsgi.RecordedWsgi(app), environ, lambda *_, sent=sent: sent.append)
        assert sent == [b"by ", b"write "]
        told.append([(re.sub('"ns":[0-9]+', '"ns":0', text), data) for text, data in bench.records()])
    assert told[0] == told[1] and told[0][-1][1] == b"by write and by return"


class _Shop:
    async def __call__(self, scope, receive, send):
        pass

    async def method(self, scope, receive, send):
        pass

    def made(self, scope, receive, send):
        return self(scope, receive, send)


class _OldShop:
    def __call__(self, scope):
        pass


@pytest.mark.parametrize("app", [_Shop(), _Shop().method, _Shop().made, _OldShop(), _outcome_of])
def test_frameworks_are_told_the_same_of_a_recorded_application(app):
    """Whether it is of ASGI 3 they see by that."""
    recorded = asgi.RecordedAsgi(app)
    for of in (lambda one: one, lambda one: one.__call__):
        assert inspect.iscoroutinefunction(of(recorded)) == inspect.iscoroutinefunction(of(app))
