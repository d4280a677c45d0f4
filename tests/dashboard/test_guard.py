"""Who may speak to the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from relive.dashboard.guard import Guard

TOKEN = "Zm9vYmFy"
HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


async def _page(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("the dashboard")


async def _talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


def client(token: str | None = TOKEN, hosts: frozenset[str] | None = HOSTS) -> TestClient:
    routes = [Route("/{path:path}", _page), WebSocketRoute("/{path:path}", _talk)]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, token=token, hosts=hosts)])
    return TestClient(app, base_url="http://127.0.0.1:8501")


@pytest.fixture
def guarded() -> Iterator[TestClient]:
    with client() as made:
        yield made


@pytest.mark.parametrize("path", [f"/{TOKEN}/", f"/{TOKEN}/incident?number=1", f"/{TOKEN}"])
def test_the_address_with_the_token_opens_it(guarded, path):
    answer = guarded.get(path)
    assert (answer.status_code, answer.text) == (200, "the dashboard")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    ["/", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", f"/x/{TOKEN}/", "//", "/%00/", "/incident", f"/?token={TOKEN}"],
)
def test_any_other_address_is_refused_with_a_remedy(guarded, path):
    answer = guarded.get(path)
    assert answer.status_code == 403
    assert "Remedy: open the address that `relive dashboard` printed." in answer.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8501", "evil@127.0.0.2", "", "[::1"]
)
def test_another_host_is_refused(guarded, host):
    assert guarded.get(f"/{TOKEN}/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost:8501", "LOCALHOST", "[::1]:8501"])
def test_the_names_of_loopback_are_good(guarded, host):
    assert guarded.get(f"/{TOKEN}/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:8502", "null", "http://localhost:8501"]
)
def test_a_page_of_another_origin_is_refused(guarded, origin):
    assert guarded.post(f"/{TOKEN}/", headers={"origin": origin}).status_code == 403
    with (
        pytest.raises(WebSocketDisconnect),
        guarded.websocket_connect(f"/{TOKEN}/s", headers={"origin": origin}),
    ):
        pass


def test_its_own_page_opens_a_web_socket_and_nobody_does_without_the_token(guarded):
    own = {"origin": "http://127.0.0.1:8501", "host": "127.0.0.1:8501"}
    with guarded.websocket_connect(f"/{TOKEN}/s", headers=own) as socket:
        assert socket.receive_text() == "hello"
    with pytest.raises(WebSocketDisconnect), guarded.websocket_connect("/s", headers=own):
        pass


def test_without_a_token_every_path_is_open_and_hosts_are_still_asked():
    with client(token=None) as plain:
        assert plain.get("/incident").status_code == 200
        assert plain.get("/incident", headers={"host": "evil.example"}).status_code == 403
    with client(hosts=None) as anywhere:
        assert anywhere.get(f"/{TOKEN}/", headers={"host": "any.example"}).status_code == 200
