"""What is asked too often, too much, too slowly is refused by a real server, and the next request is answered."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import httpx
import pytest

from relive.server.credentials import Scope
from relive.server.rate_limits import Allowance, Buckets
from server.serving import bearer, served

ALLOWED = Allowance(
    headers=4096,
    body=10_000,
    body_seconds=0.2,
    token_rate=1e-6,
    token_burst=30,
    address_rate=1000.0,
    address_burst=1000,
    requests=8,
    requests_each=2,
    streams=8,
    streams_each=2,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("home") / "server", allowance=ALLOWED) as running:
        yield running


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, headers=bearer(server.token(Scope.READ))) as made:
        yield made


@pytest.fixture(autouse=True)
def the_next_is_answered(server):
    yield
    assert httpx.post(f"{server.url}/size", content=b"abc").text == "3"


def spoken(server, *pieces):
    """The whole answer to what is sent, on a connection that the server is to end."""
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def code(answer, status):
    assert answer.status_code == status
    return answer.json()["error"]["code"]


def test_a_body_of_the_size_allowed_goes_through(client):
    assert client.post("/size", content=b"a" * 10_000).text == "10000"
    assert client.post("/size", content=iter([b"a" * 5000] * 2)).text == "10000"


def test_a_body_that_says_it_is_too_large_is_not_read(server):
    answer = spoken(server, b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 10001\r\n\r\n")
    assert b" 413 " in answer.splitlines()[0]
    assert b'"request-too-large"' in answer


def test_a_body_in_chunks_is_counted_as_it_comes(server):
    head = b"POST /size HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = spoken(server, head, b"1388\r\n" + b"a" * 5000 + b"\r\n", b"138a\r\n" + b"a" * 5002 + b"\r\n")
    assert b" 413 " in answer.splitlines()[0]
    assert b'"request-too-large"' in answer


@pytest.mark.parametrize("route", [b"size", b"commits"])
def test_a_body_that_does_not_come_is_not_waited_for(server, route):
    """Where the route reads it itself, and where FastAPI does."""
    token = server.token(Scope.OPERATE).encode()
    head = b"POST /" + route + b" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    head += b"Authorization: Bearer " + token + b"\r\nContent-Length: 100\r\n\r\n"
    answer = spoken(server, head, b'{"ref":')
    assert b" 408 " in answer.splitlines()[0]
    assert b'"request-too-slow"' in answer


def test_long_headers_are_refused(client):
    assert code(client.get("/commits", headers={"X-Long": "a" * 4096}), 431) == "headers-too-large"
    assert code(client.get("/commits", params={"q": "a" * 4096}), 431) == "headers-too-large"
    assert client.get("/commits", headers={"X-Long": "a" * 3000}).status_code == 200


def test_a_token_may_ask_so_often(server, client):
    statuses = [client.get("/commits").status_code for _ in range(31)]
    assert statuses == [200] * 30 + [429]
    answer = client.get("/commits")
    assert code(answer, 429) == "too-many-requests"
    assert int(answer.headers["retry-after"]) > 0
    other = bearer(server.token(Scope.READ))
    assert httpx.get(f"{server.url}/commits", headers=other).status_code == 200


def test_nobody_uses_up_what_another_may_ask(server):
    """An id with a wrong secret is counted by its address."""
    made, text = server.tokens.create("victim", [Scope.READ], lifetime=None)
    with httpx.Client(base_url=server.url) as client:
        for _ in range(35):
            assert client.get("/commits", headers=bearer(f"rlv_{made.id}_{'0' * 64}")).status_code == 401
        assert client.get("/commits", headers=bearer(text)).status_code == 200


def test_one_caller_has_not_all_places(server):
    with ExitStack() as held:
        connections = []
        for _ in range(2):
            one = held.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), 30)))
            one.sendall(b"GET /held HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert server.held.acquire(timeout=30)
            connections.append(one)
        answer = httpx.get(f"{server.url}/commits")
        assert code(answer, 503) == "server-busy"
        assert answer.headers["retry-after"] == "1"
        other = bearer(server.token(Scope.READ))
        assert httpx.get(f"{server.url}/commits", headers=other).status_code == 200
        server.go_on.set()
        for one in connections:
            with one.makefile("rb") as answered:
                assert answered.read().endswith(b'"done"')
    server.go_on.clear()


def test_streams_of_events_take_no_place_of_requests_and_are_counted_themselves(server):
    with httpx.Client(base_url=server.url) as client, ExitStack() as held:
        streams = [held.enter_context(client.stream("GET", "/events")) for _ in range(2)]
        lines = [stream.iter_lines() for stream in streams]
        assert [next(one) for one in lines] == ["data: first"] * 2
        assert code(client.get("/events"), 503) == "server-busy"
        assert client.post("/size", content=b"abc").text == "3"
        server.go_on.set()
        assert [[line for line in one if line] for one in lines] == [["data: last"]] * 2
    server.go_on.clear()


def test_a_bucket_fills_again_and_not_beyond_its_brim():
    now = [0.0]
    buckets = Buckets(clock=lambda: now[0])
    assert [buckets.acquire("a", 2, 3) for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.acquire("b", 2, 3) == 0
    now[0] = 0.5
    assert [buckets.acquire("a", 2, 3) for _ in range(2)] == [0, 0.5]
    now[0] = 1000
    assert [buckets.acquire("a", 2, 3) for _ in range(4)] == [0, 0, 0, 0.5]


def test_buckets_do_not_grow_without_end():
    buckets = Buckets(clock=lambda: 0.0)
    for number in range(Buckets._KEPT + 10):
        buckets.acquire(str(number), 1, 1)
    assert len(buckets._levels) == Buckets._KEPT
    assert buckets.acquire(str(Buckets._KEPT + 5), 1, 1) > 0
