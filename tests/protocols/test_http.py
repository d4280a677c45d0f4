"""HTTP: real clients talk to real servers through a recording pipe, and once more to nobody but the recording."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.answering import answering, bytes_of
from protocols.continuing import assert_it_continues_everywhere
from protocols.httpservers import raw_server, read_request, reset, serving, uvicorn_serving
from protocols.mixing import conversations
from protocols.recording import Pipe, recording
from protocols.scripted import dialogue
from relive.protocols.call import Call, CallEnd
from relive.protocols.http import Http
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.session import Close, Reset, Resume, Send
from relive.recording.dialogues import Way
from relive.recording.events import EventKind

HTTP = Http()
GET_A = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
OK_2 = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def calls_of(pipe: Pipe) -> list[Call]:
    return [call for one in pipe.settle() for call in HTTP.calls(one)]


def twice(server: tuple[str, int], program: Callable[[int], Any]) -> tuple[Any, Any, list[Call]]:
    """What a program gets from a server, what it gets from the recording of that, and the recorded calls."""
    with recording(server) as pipe:
        first = program(pipe.port)
        calls = calls_of(pipe)
    for one in pipe.dialogues:
        assert_it_continues_everywhere(HTTP, one, most=40)
    found: list[PoolMatch] = []
    pool = Pool(calls, on_found=found.append)
    with answering(HTTP, pool, to=server, port=pipe.port) as port:
        second = program(port)
    assert [one for one in found if one.is_miss] == []
    assert pool.left() == []
    return first, second, calls


def of_httpx(port: int) -> list[Any]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        said = [
            client.get("/chunks"),
            client.get("/count?b=2&a=1"),
            client.get("/count?b=2&a=1"),
            client.post("/orders", json={"id": 7, "lines": [1, 2]}),
            client.put("/form", data={"name": "x"}, files={"file": ("f.bin", b"\0\1\2" * 1000)}),
            client.head("/x"),
            client.get("/late"),
            client.get("/nothing"),
            client.get("/close"),
            client.get("/afterwards"),
        ]
    return [(one.status_code, one.headers.multi_items(), one.content) for one in said]


def of_requests(port: int) -> list[Any]:
    with requests.Session() as session:
        said = [
            session.get(f"http://127.0.0.1:{port}{path}") for path in ("/chunks", "/count", "/close", "/b")
        ]
        return [(one.status_code, dict(one.headers), one.content) for one in said]


def of_aiohttp(port: int) -> list[Any]:
    async def main() -> list[Any]:
        import aiohttp

        found = []
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path in ("/chunks", "/late", "/count"):
                async with session.get(path) as said:
                    found.append((said.status, dict(said.headers), await said.read()))
            async with session.post("/orders", json={"id": 1}) as said:
                found.append((said.status, dict(said.headers), await said.read()))
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("program", [of_httpx, of_requests, of_aiohttp])
def test_a_client_gets_from_the_recording_what_it_got_from_the_server(program):
    with serving() as server:
        first, second, _ = twice(server, program)
    assert second == first


def test_a_client_of_uvicorn_gets_the_same_from_the_recording():
    def program(port: int) -> list[Any]:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            said = [client.get("/a"), client.post("/b", content=b"x" * 200_000), client.get("/c")]
            said.append(client.post("/chunked", content=iter([b"abc", b"def"])))
            return [(one.status_code, one.headers.multi_items(), one.content) for one in said]

    with uvicorn_serving() as server:
        first, second, _ = twice(server, program)
    assert second == first


def test_curl_is_told_to_go_on_before_it_sends_a_large_body(tmp_path: Path):
    """It waits for 100 Continue, for a second at most: the stub says it, and it is not said twice."""
    body = tmp_path / "body"
    body.write_bytes(b"y" * (2 << 20))

    def program(port: int) -> bytes:
        command = ["curl", "-s", "-H", "Expect: 100-continue", "--data-binary", f"@{body}"]
        return subprocess.run(
            [*command, f"http://127.0.0.1:{port}/p"], capture_output=True, check=True
        ).stdout

    with uvicorn_serving() as server:
        with recording(server) as pipe:
            first = program(pipe.port)
            (call,) = calls_of(pipe)
        assert call.extra["interim"] > 0
        with answering(HTTP, Pool([call]), to=server, port=pipe.port) as port:
            began = time.monotonic()
            second = program(port)
            took = time.monotonic() - began
    assert second == first == b"you sent 2097152 bytes"
    assert took < 30
    whole = dialogue([(Way.UP, b"".join(p.data for p in pipe.dialogues[0].of(Way.UP))[:300])])
    assert HTTP.recognises(whole)


def test_the_same_words_as_the_recorder_in_python_processes_uses():
    with serving() as server:
        _, _, calls = twice(
            server, lambda port: requests.get(f"http://127.0.0.1:{port}/count?x=1").status_code
        )
    (call,) = calls
    port = call.asked["url"].split(":")[2].split("/")[0]
    assert call.kind is EventKind.HTTP_CALL
    assert call.asked == {
        "method": "GET",
        "url": f"http://127.0.0.1:{port}/count?x=1",
        "headers": {"accept": "*/*"},
        "body": "",
    }
    assert sorted(call.extra["volatile"]) == ["accept-encoding", "connection", "host", "user-agent"]
    assert (call.answer["status"], call.answer["reason"]) == (200, "OK")
    assert ["content-length", "1"] in call.answer["headers"]


def test_pauses_are_those_of_the_recording():
    with serving() as server, recording(server) as pipe:
        httpx.get(f"http://127.0.0.1:{pipe.port}/late")
        httpx.get(f"http://127.0.0.1:{pipe.port}/chunks")
        late, chunks = calls_of(pipe)
    assert late.pieces[0].after_ns >= 150_000_000
    assert (
        sum(piece.after_ns for piece in chunks.pieces) >= 60_000_000
    )  # on a busy machine two may arrive as one piece
    raw = b"".join(piece.data for piece in chunks.pieces)
    assert raw.endswith(b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\nX-Sum: 3\r\n\r\n")


def talked(port: int, *requests_: bytes, patience: float = 60.0) -> tuple[bytes, str]:
    """All that comes for some requests, and how the connection ended: "closed", "reset", or "silence" for so many seconds."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(patience)
        got = b""
        try:
            for request in requests_:
                connection.sendall(request)
            while part := connection.recv(65536):
                got += part
        except ConnectionResetError:
            return got, "reset"
        except TimeoutError:
            return got, "silence"
        return got, "closed"


def breaks_in_the_body(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    connection.recv(1)  # until the client has it all
    reset(connection)


def closes_in_the_body(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")


def says_nothing(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)


def lasts_until_close(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nthe rest of it")


@pytest.mark.parametrize(
    ("talk", "end", "sort"),
    [
        (closes_in_the_body, CallEnd.CLOSED, "closed"),
        (says_nothing, CallEnd.GIVEN_UP, "silence"),
        (lasts_until_close, CallEnd.ANSWERED, "closed"),
    ],
)
def test_what_a_server_did_wrong_it_does_again(talk, end, sort):
    with raw_server(talk) as server, recording(server) as pipe:
        patience = 0.3 if sort == "silence" else 60.0  # [s]
        first = talked(pipe.port, GET_A, patience=patience)
        (call,) = calls_of(pipe)
    assert (call.end, first[1]) == (end, sort)
    assert_it_continues_everywhere(HTTP, pipe.dialogues[0])
    with answering(HTTP, Pool([call]), to=server, port=pipe.port) as port:
        assert talked(port, GET_A, patience=patience) == first


def test_a_body_that_was_reset_in_the_middle_is_reset_there_again():
    with raw_server(breaks_in_the_body) as server, recording(server) as pipe:
        with socket.create_connection(("127.0.0.1", pipe.port)) as connection:
            connection.sendall(GET_A)
            got = b""
            while not got.endswith(b"half"):
                got += connection.recv(100)
            connection.sendall(b"!")  # the server's word to break it
            with pytest.raises(ConnectionResetError):
                connection.recv(100)
        call = calls_of(pipe)[0]
    assert call.end is CallEnd.RESET
    session = HTTP.open(Pool([call]), 1)
    *sends, last = session.feed(GET_A)
    assert bytes_of(sends) == got
    assert isinstance(last, Reset)
    assert session.feed(GET_A) == []


def test_what_a_server_says_unasked_it_says_again_where_its_connection_goes_on():
    late = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    said = dialogue([(Way.UP, GET_A), (Way.DOWN, OK_2), (Way.DOWN, late)], closed=Way.DOWN)
    assert_it_continues_everywhere(HTTP, said)
    _, acts = HTTP.resume(Pool([]), 1, Resume(said, len(GET_A), len(OK_2)))
    assert [type(act) for act in acts] == [Send, Close]
    assert bytes_of(HTTP.open(Pool(HTTP.calls(said)), 1).feed(GET_A)) == OK_2


def test_a_question_half_said_is_answered_though_nothing_else_is_known():
    said = dialogue([(Way.UP, post(b'{"a":1}')), (Way.DOWN, OK_2)])
    session, acts = HTTP.resume(Pool([]), 1, Resume(said, 30, 0))
    assert acts == []
    assert bytes_of(session.feed(said.text(Way.UP, 30))) == OK_2


def test_a_question_that_goes_on_otherwise_is_another_question():
    said = dialogue([(Way.UP, post(b'{"a":1}')), (Way.DOWN, OK_2)])
    found: list[PoolMatch] = []
    session, _ = HTTP.resume(Pool(HTTP.calls(said), on_found=found.append), 1, Resume(said, 30, 0))
    answer = bytes_of(session.feed(post(b'{"a":2}')[30:]))
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert found[0].differs == ("body:$.a",)


def test_an_answer_that_has_begun_goes_on_whatever_the_rest_of_the_question_is():
    """It came before the question was whole; bytes of it are at the service already."""
    said = dialogue([(Way.UP, post(b'{"a":1}')[:-2]), (Way.DOWN, OK_2), (Way.UP, b"1}")])
    up, down = len(post(b'{"a":1}')) - 2, 10
    session, acts = HTTP.resume(Pool(HTTP.calls(said)), 1, Resume(said, up, down))
    assert bytes_of(acts + session.feed(b"2}")) == OK_2[10:]


def test_requests_that_are_not_waited_for_are_answered_in_their_order():
    def program(port: int) -> tuple[bytes, str]:
        return talked(port, GET_A + GET_A.replace(b"/a", b"/b") + GET_A.replace(b"/a", b"/close"))

    with serving() as server:
        first, second, calls = twice(server, program)
    assert second == first
    assert len(calls) == 3
    assert first[1] == "closed"


def test_after_an_upgrade_there_are_only_bytes():
    said = dialogue(
        [
            (Way.UP, b"GET /chat HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"),
            (Way.DOWN, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\n\r\nwelcome"),
            (Way.UP, b"hello"),
            (Way.DOWN, b"hello yourself"),
            (Way.UP, b"bye"),
            (Way.DOWN, b"bye"),
        ]
    )
    calls = HTTP.calls(said)
    assert [call.kind for call in calls] == [EventKind.HTTP_CALL, *[EventKind.DIALOGUE_UP] * 3]
    assert_it_continues_everywhere(HTTP, said)
    session = HTTP.open(Pool(calls), 1, to=said.to)
    assert bytes_of(session.feed(said.text(Way.UP))) == said.text(Way.DOWN)


def test_a_refused_upgrade_leaves_messages():
    request = b"GET /chat HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"
    said = dialogue([(Way.UP, request + GET_A), (Way.DOWN, OK_2), (Way.DOWN, OK_2)])
    assert [call.asked["url"] for call in HTTP.calls(said)] == ["http://h/chat", "http://h/a"]
    assert_it_continues_everywhere(HTTP, said)


def test_a_tunnel_is_bytes_behind_its_grant():
    said = dialogue(
        [
            (Way.UP, b"CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n"),
            (Way.DOWN, b"HTTP/1.1 200 Connected\r\n\r\n"),
            (Way.UP, b"\0\1question"),
            (Way.DOWN, b"\2answer"),
        ]
    )
    assert HTTP.calls(said)[0].asked["url"] == "db:5432"
    assert_it_continues_everywhere(HTTP, said)


def test_an_answer_that_came_before_the_body_was_sent():
    """Whoever waits to be told to go on is refused at once, and does not send the body."""
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    refusal = b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"
    said = dialogue([(Way.UP, head), (Way.DOWN, refusal)], closed=Way.UP)
    (call,) = HTTP.calls(said)
    assert call.asked["body"] == {"unsent": True}
    session = HTTP.open(Pool([call]), 1)
    assert bytes_of(session.feed(head)) == refusal
    assert session.feed(b"12345") == []


def test_who_waits_to_be_told_to_go_on_is_told_so_once():
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    told = b"HTTP/1.1 100 Go on\r\n\r\n"
    said = dialogue([(Way.UP, head), (Way.DOWN, told), (Way.UP, b"12345"), (Way.DOWN, OK_2)])
    assert_it_continues_everywhere(HTTP, said)
    session = HTTP.open(Pool(HTTP.calls(said)), 1)
    assert bytes_of(session.feed(head)) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert bytes_of(session.feed(b"12345")) == OK_2


def test_an_answer_from_a_connection_that_stayed_is_closed_for_who_wants_that():
    said = dialogue([(Way.UP, GET_A), (Way.DOWN, OK_2)])
    session = HTTP.open(Pool(HTTP.calls(said)), 1)
    acts = session.feed(GET_A.replace(b"Host", b"Connection: close\r\nHost"))
    assert [type(act) for act in acts] == [Send, Close]


def test_chunks_are_taken_off_for_a_client_that_knows_none():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    said = dialogue([(Way.UP, GET_A), (Way.DOWN, chunked)])
    session = HTTP.open(Pool(HTTP.calls(said)), 1)
    acts = session.feed(b"GET /a HTTP/1.0\r\nHost: h\r\n\r\n")
    assert bytes_of(acts) == b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nabc"
    assert isinstance(acts[-1], Close)


# -- what matches -----------------------------------------------------------------------------------------------------


def asking(request: bytes, recorded: bytes = GET_A, ignore: tuple[str, ...] = ()) -> tuple[bytes, PoolMatch]:
    """What is said to a request when another one was recorded, and what was found."""
    found: list[PoolMatch] = []
    calls = HTTP.calls(dialogue([(Way.UP, recorded), (Way.DOWN, OK_2)]))
    session = HTTP.open(Pool(calls, ignore=ignore, on_found=found.append), 1)
    return bytes_of(session.feed(request)), found[0]


def post(body: bytes, content_type: bytes = b"application/json", more: bytes = b"") -> bytes:
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n"
    return head % (content_type, len(body), more) + body


@pytest.mark.parametrize(
    ("live", "recorded"),
    [
        (GET_A.replace(b"Host", b"User-Agent: x\r\nDate: now\r\ntraceparent: 00-1\r\nHost"), GET_A),
        (GET_A.replace(b"/a ", b"/a?y=2&x=1 "), GET_A.replace(b"/a ", b"/a?x=1&y=2 ")),
        (post(b'{"a":1,"b":[2]}'), post(b'{ "b": [2],\n "a": 1 }')),
        (
            post(b"a=1&b=%20", b"application/x-www-form-urlencoded"),
            post(b"b=+&a=1", b"application/x-www-form-urlencoded"),
        ),
        (
            post(b"--one\r\n\r\nx\r\n--one--", b'multipart/form-data; boundary="one"'),
            post(b"--two\r\n\r\nx\r\n--two--", b"multipart/form-data; boundary=two"),
        ),
        (
            b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
            post(b"xy", b"a/b"),
        ),
    ],
)
def test_the_same_question_in_other_bytes(live, recorded):
    assert asking(live, recorded)[0] == OK_2


@pytest.mark.parametrize(
    ("live", "recorded", "differs"),
    [
        (GET_A.replace(b"/a", b"/b"), GET_A, ("path",)),
        (GET_A.replace(b"GET", b"DELETE"), GET_A, ("method",)),
        (GET_A.replace(b"Host: h", b"Host: other"), GET_A, ("host",)),
        (GET_A.replace(b"/a ", b"/a?ts=2 "), GET_A.replace(b"/a ", b"/a?ts=1 "), ("query:ts",)),
        (post(b'{"a":{"b":2}}'), post(b'{"a":{"b":1}}'), ("body:$.a.b",)),
        (post(b"{}", more=b"X-Tenant: 1\r\n"), post(b"{}", more=b"X-Tenant: 2\r\n"), ("header:x-tenant",)),
        (
            post(b"{}", more=b"Authorization: Bearer one\r\n"),
            post(b"{}", more=b"Authorization: Bearer two\r\n"),
            ("header:authorization",),
        ),
    ],
)
def test_another_question_is_told_what_comes_nearest_and_how_to_accept_it(live, recorded, differs):
    said, found = asking(live, recorded)
    assert found.differs == differs
    assert said.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    header = next(line for line in said.split(b"\r\n") if line.startswith(b"X-Relive-Miss: "))
    assert f"--ignore '{differs[0]}'".encode() in header
    assert asking(live, recorded, ignore=differs)[0] == OK_2
    answered = httpx.Response(502, content=said.partition(b"\r\n\r\n")[2]).json()
    assert answered["differs"] == list(differs)


def test_what_is_compressed_is_compared_by_its_content():
    """gzip writes the time into its head."""
    noise = random.Random(1).randbytes(70_000).hex().encode()

    def packed(text: bytes, when: int, size: int) -> bytes:
        body = gzip.compress(text[:-1] + b', "noise": "%b"}' % noise[:size], mtime=when)
        return post(body, more=b"Content-Encoding: gzip\r\n")

    for size in (0, 140_000):
        assert asking(packed(b'{"a": 1}', 1, size), packed(b'{"a": 1}', 2, size))[0] == OK_2
    assert asking(packed(b'{"a": 1}', 1, 0), packed(b'{"a": 2}', 1, 0))[1].differs == ("body:$.a",)


def test_signatures_of_aws_are_not_compared():
    one, other = (
        post(b"{}", more=b"Authorization: AWS4-HMAC-SHA256 Signature=%b\r\n" % sign) for sign in (b"a", b"b")
    )
    assert asking(one, other)[0] == OK_2


def test_of_what_was_not_kept_to_its_end_it_is_not_known_how_it_ended():
    said = dialogue([(Way.UP, GET_A), (Way.DOWN, OK_2[:-1])], closed=Way.DOWN)
    said.endings[Way.DOWN] = replace(said.endings[Way.DOWN], cut=1)
    (call,) = HTTP.calls(said)
    assert call.end is CallEnd.OPEN
    assert [type(act) for act in HTTP.open(Pool([call]), 1).feed(GET_A)] == [Send]


def test_secrets_stand_in_no_question():
    said, found = asking(post(b"{}", more=b"Authorization: Bearer hunter22\r\nCookie: sid=topsecret\r\n"))
    assert "hunter22" not in str(found.asked)
    assert "topsecret" not in str(found.asked)
    assert b"hunter22" not in said


def test_long_bodies_are_told_by_digest_and_compared_by_their_meaning():
    long = b'{"a": "' + b"x" * 70_000 + b'", "b": 1}'
    other = b'{"b":1,"a":"' + b"x" * 70_000 + b'"}'
    said, found = asking(post(other), post(long))
    assert said == OK_2
    assert set(found.asked["body"]) == {"bytes", "blake2b"}


def test_what_was_read_is_given_again_and_what_was_written_is_not():
    wrote = post(b"{}")
    said = dialogue([(Way.UP, GET_A), (Way.DOWN, OK_2), (Way.UP, wrote), (Way.DOWN, OK_2)])
    session = HTTP.open(Pool(HTTP.calls(said)), 1)
    assert bytes_of(session.feed(GET_A + GET_A + wrote)) == OK_2 * 3
    assert b"a write is answered once only" in bytes_of(session.feed(wrote))


def test_a_miss_can_break_the_connection_instead():
    session = Http(on_miss="reset").open(Pool([]), 1)
    assert [type(act) for act in session.feed(GET_A)] == [Reset]


def test_a_head_without_a_body_is_answered_without_one():
    session = HTTP.open(Pool([]), 1)
    assert bytes_of(session.feed(GET_A.replace(b"GET", b"HEAD"))).endswith(b"\r\n\r\n")


# -- whatever comes ---------------------------------------------------------------------------------------------------


PAIRS = [
    (GET_A, OK_2),
    (post(b'{"a":1}'), OK_2),
    (GET_A.replace(b"GET", b"HEAD"), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
    (
        GET_A.replace(b"/a", b"/c"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ),
    (GET_A.replace(b"/a", b"/n"), b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
    (GET_A.replace(b"Host", b"Connection: upgrade\r\nUpgrade: x\r\nHost"), OK_2),
]


@given(conversations(PAIRS), st.sampled_from([None, *Way]))
@settings(max_examples=40, deadline=None)
def test_whatever_is_said_continues(pieces, closed):
    assert_it_continues_everywhere(HTTP, dialogue(pieces, closed=closed), most=30)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_how_the_bytes_are_cut_makes_no_difference(cuts):
    up = GET_A + post(b'{"a":1}') + GET_A.replace(b"/a", b"/b")
    down = [OK_2, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", OK_2]
    whole = dialogue([(Way.UP, up), *[(Way.DOWN, one) for one in down]])
    pieces = []
    rest, at = up, 0
    while rest:
        size = cuts[at % len(cuts)]
        pieces.append((Way.UP, rest[:size]))
        rest, at = rest[size:], at + 1
    cut = dialogue([*pieces, *[(Way.DOWN, one) for one in down]])
    assert [(c.asked, c.answer, c.up, c.down) for c in HTTP.calls(cut)] == [
        (c.asked, c.answer, c.up, c.down) for c in HTTP.calls(whole)
    ]
    session = HTTP.open(Pool(HTTP.calls(whole)), 1)
    assert b"".join(bytes_of(session.feed(data)) for _, data in pieces) == b"".join(down)


@given(st.lists(st.tuples(st.sampled_from(Way), st.binary(min_size=1, max_size=80)), max_size=8))
@settings(max_examples=80, deadline=None)
def test_nothing_that_is_said_raises(pieces):
    said = dialogue([(Way.UP, GET_A), *pieces])
    calls = HTTP.calls(said)
    assert sum(call.up[1] - call.up[0] for call in calls) <= len(said.text(Way.UP))
    session = HTTP.open(Pool(calls), 1)
    for way, data in pieces:
        if way is Way.UP:
            session.feed(data)
    session.hang_up()
    half = len(said.text(Way.UP)) // 2
    HTTP.resume(Pool(calls), 1, Resume(said, half, 0))


def test_a_first_line_that_never_ends_is_not_held_without_bound():
    session = HTTP.open(Pool([]), 1)
    acts = [act for _ in range(400) for act in session.feed(b"G" * 1000)]
    assert [type(act) for act in acts] == [Reset]


@pytest.mark.parametrize(
    ("name", "values", "again"),
    [
        ("X-Request-Id", ("a", "b"), ("a", "b")),
        (
            "traceparent",
            (f"00-{'a' * 32}-{'1' * 16}-01", f"00-{'b' * 32}-{'1' * 16}-01"),
            (f"00-{'a' * 32}-{'2' * 16}-01", f"00-{'b' * 32}-{'3' * 16}-01"),
        ),
    ],
)
def test_of_two_requests_that_ask_the_same_each_gets_its_own_answer_in_any_order(name, values, again):
    """GIVEN two requests of a service that were served at a time, and asked the same of another server
    WHEN their calls come in the other order, THEN each is answered as it was: by the id that both calls of a request carry.
    """

    def asked(value: str) -> bytes:
        return f"GET /ticket HTTP/1.1\r\nHost: h\r\n{name}: {value}\r\n\r\n".encode()

    def given(answer: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + answer

    recorded = dialogue(
        [
            (Way.UP, asked(values[0])),
            (Way.DOWN, given(b"1")),
            (Way.UP, asked(values[1])),
            (Way.DOWN, given(b"2")),
        ]
    )
    session = HTTP.open(Pool(HTTP.calls(recorded)), 9, to=recorded.to)
    answers = [bytes_of(session.feed(asked(value)))[-1:] for value in (again[1], again[0])]
    assert answers == [b"2", b"1"]
