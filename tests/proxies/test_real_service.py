"""A real uvicorn behind the proxy, driven by real clients."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import websockets

from relive.recording.events import EventKind
from relive.recording.exchanges import ExchangeEnd, Exchanges
from relive.recording.reader import Recording

from .conftest import RunningProxy

APP = """
import asyncio
waiting, everyone = 0, None

async def app(scope, receive, send):
    global waiting, everyone
    if scope["type"] == "lifespan":
        return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"].upper()})
        return
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    if scope["path"] == "/together":  # answers when 200 requests are there at once
        mine = everyone = everyone or asyncio.Event()
        waiting += 1
        if waiting == 200:
            everyone.set()
            waiting, everyone = 0, None
        await mine.wait()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["method"].encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b" " + body})
"""


@pytest.fixture(scope="module")
def uvicorn_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("app")
    (directory / "app.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        # It listens already when uvicorn takes it over, so nobody has to wait for it.
        options = ["--fd", str(listener.fileno()), "--app-dir", str(directory), "--log-level", "warning"]
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *options, "app:app"], pass_fds=[listener.fileno()]
        )
        yield listener.getsockname()[1]
    process.terminate()
    process.wait(10)


@pytest.fixture
def proxy(start_proxy: Callable[..., RunningProxy], uvicorn_port: int, tmp_path: Path) -> RunningProxy:
    return start_proxy(uvicorn_port)


def test_httpx_sends_and_streams_through_it(proxy: RunningProxy):
    with httpx.Client(base_url=proxy.url) as client:
        assert client.get("/").text == "GET "
        assert client.post("/", content=b"abc").text == "POST abc"
        assert client.put("/", content=iter([b"ab", b"c"] * 100)).text == "PUT " + "abc" * 100
        assert client.head("/").text == ""
    proxy.stop()
    found = list(Exchanges(Recording(proxy.directory)).all())
    assert [exchange.method for exchange in found] == ["GET", "POST", "PUT", "HEAD"]
    assert [exchange.answer_body() for exchange in found] == [
        b"GET ",
        b"POST abc",
        b"PUT " + b"abc" * 100,
        b"",
    ]
    assert {exchange.connection for exchange in found} == {1}


def test_requests_are_as_concurrent_as_clients_make_them(proxy: RunningProxy):
    """The service answers none of the 200 before it has all of them."""

    async def together() -> list[str]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=proxy.url, limits=limits, timeout=20) as client:
            answers = await asyncio.gather(*(client.get("/together") for _ in range(200)))
        return [answer.text for answer in answers]

    assert asyncio.run(together()) == ["GET "] * 200
    proxy.stop()
    found = Exchanges(Recording(proxy.directory))
    last_start = max(event.seq for event in proxy.events(EventKind.REQUEST_STARTED))
    assert len(found.open_at(last_start)) == 200
    assert [exchange.number for exchange in found.begun_in(0, last_start)] == list(range(1, 201))


def test_a_websocket_passes(proxy: RunningProxy):
    async def talk() -> str:
        async with websockets.connect(f"ws://127.0.0.1:{proxy.port}/ws", compression=None) as socket:
            await socket.send("hello")
            return str(await socket.recv())

    assert asyncio.run(talk()) == "HELLO"
    proxy.wait_for(EventKind.CONNECTION_CLOSED)
    assert proxy.exchange(1).ended is ExchangeEnd.UPGRADED
    assert b"HELLO" in b"".join(event.data for event in proxy.events(EventKind.STREAM_TO_CLIENT))
