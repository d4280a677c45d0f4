"""Requests are told the same by the part in C and by the part in Python."""

from __future__ import annotations

import contextvars
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
        start(status="200 OK" if fails != "note" else "none", headers=[])
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
        monkeypatch.setattr(asgi, "int", fail, raising=False)
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
        told.append([(re.sub('"ns":[0-9]+', "", text), data) for text, data in bench.records()])
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
