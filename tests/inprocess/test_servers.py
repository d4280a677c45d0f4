"""Each server with a real client: requests keep apart, bodies and answers are kept, what escapes is a failure with its frames."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from relive.model.failure import ErrorPackage, Where, read_package
from relive.recording.events import Event, EventKind
from relive.recording.rings import RingReader

from .conftest import INPROCESS

LIMIT = 60.0  # [s]
Result = TypeVar("Result")

FASTAPI = """
import asyncio
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import Response, StreamingResponse
app = FastAPI()
@app.post("/echo/{name}")
async def echo(name: str, request: Request):
    body = await request.body()
    await asyncio.sleep(0.01)
    return {"name": name, "length": len(body)}
@app.get("/stream")
def stream():
    return StreamingResponse(iter([b"one ", b"two"]))
@app.get("/long/{pieces}")
def long(pieces: int):
    body = b"password=hunter22 " + b"x" * 100_000
    return StreamingResponse(iter([body] * pieces)) if pieces > 1 else Response(body)
@app.post("/fail/{order}")
def fail(order: int, request: Request):
    api_key = "sk-live-0815"
    return {}[order]
@app.websocket("/ws")
async def ws(socket: WebSocket):
    await socket.accept()
    await socket.send_text(await socket.receive_text())
"""
UVICORN = """
import sys, uvicorn
uvicorn.run("api:app", port=int(sys.argv[1]), log_level="warning")
"""
HYPERCORN = """
import sys
from hypercorn.__main__ import main
if __name__ == "__main__":
    main(["-b", "127.0.0.1:" + sys.argv[1], "api:app"])
"""
DAPHNE = """
import sys
from daphne.cli import CommandLineInterface
CommandLineInterface().run(["-b", "127.0.0.1", "-p", sys.argv[1], "api:app"])
"""

FLASK = """
import time
from flask import Flask, request
app = Flask("shop")
@app.post("/echo/<name>")
def echo(name):
    length = len(request.get_data())
    time.sleep(0.01)
    return {"name": name, "length": length}
@app.get("/stream")
def stream():
    return (piece for piece in [b"one ", b"two"])
@app.post("/fail/<int:order>")
def fail(order):
    api_key = "sk-live-0815"
    return {}[order]
"""
GUNICORN = """
import sys
from gunicorn.app.wsgiapp import run
sys.argv[1:] = ["-b", "127.0.0.1:" + sys.argv[1], %s]
run()
"""
WERKZEUG = """
import sys
from shop import app
app.run(port=int(sys.argv[1]))
"""
WAITRESS = """
import sys
from waitress.runner import run
run(["waitress-serve", "--listen=127.0.0.1:" + sys.argv[1], "shop:app"])
"""
PYWSGI = """
import sys
from gevent import monkey
monkey.patch_all()
from gevent.pywsgi import WSGIServer
from shop import app
WSGIServer(("127.0.0.1", 0), log=None)  # has no application, as where another handler is given
WSGIServer(("127.0.0.1", int(sys.argv[1])), app, log=None).serve_forever()
"""

DJANGO = """
import sys
from django.conf import settings
settings.configure(DEBUG=False, ROOT_URLCONF="__main__", ALLOWED_HOSTS=["*"], SECRET_KEY="x" * 50, MIDDLEWARE=[])
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
def echo(request, name):
    return JsonResponse({"name": name, "length": len(request.body)})
def stream(request):
    return StreamingHttpResponse(iter([b"one ", b"two"]))
def fail(request, order):
    api_key = "sk-live-0815"
    request.body
    return {}[order]
urlpatterns = [path("echo/<name>", echo), path("stream", stream), path("fail/<int:order>", fail)]
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "runserver", "--noreload", "--skip-checks", sys.argv[1]])
"""

AIOHTTP = """
import sys
from aiohttp import web
async def echo(request):
    return web.json_response({"name": request.match_info["name"], "length": len(await request.read())})
async def stream(request):
    answer = web.StreamResponse(); await answer.prepare(request)
    await answer.write(b"one "); await answer.write(b"two")
    return answer
async def fail(request):
    order = int(request.match_info["order"])
    api_key = "sk-live-0815"
    await request.read()
    return {}[order]
app = web.Application()
app.add_routes([web.post("/echo/{name}", echo), web.get("/stream", stream), web.post("/fail/{order}", fail)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""
# What differs between them: where a streamed body goes by unseen.
SERVERS = {
    "fastapi-uvicorn": (UVICORN, "asgi", b"one two"),
    "fastapi-hypercorn": (HYPERCORN, "asgi", b"one two"),
    "fastapi-daphne": (DAPHNE, "asgi", b"one two"),
    "fastapi-gunicorn": (GUNICORN % "'-k', 'asgi', 'api:app'", "asgi", b"one two"),
    "fastapi-gunicorn-uvicorn": (
        GUNICORN % "'-k', 'uvicorn_worker.UvicornWorker', 'api:app'",
        "asgi",
        b"one two",
    ),
    "flask-gunicorn-sync": (GUNICORN % "'-w', '2', 'shop:app'", "wsgi", b"one two"),
    "flask-gunicorn-threads": (GUNICORN % "'--threads', '4', 'shop:app'", "wsgi", b"one two"),
    "flask-gunicorn-gevent": (GUNICORN % "'-k', 'gevent', 'shop:app'", "wsgi", b"one two"),
    "flask-werkzeug": (WERKZEUG, "wsgi", b"one two"),
    "flask-waitress": (WAITRESS, "wsgi", b"one two"),
    "flask-pywsgi": (PYWSGI, "wsgi", b"one two"),
    "django-runserver": (DJANGO, "wsgi", b"one two"),
    "aiohttp": (AIOHTTP, "aiohttp", b""),
}
each_server = pytest.mark.parametrize("server", SERVERS)


@dataclass
class Served:
    """A server under test, with the recorder in it."""

    port: int
    process: subprocess.Popen[bytes]
    rings: Path
    log: Path

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        ) as connection:
            connection.request(method, path, body, {name.replace("_", "-"): v for name, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def events(self, *kinds: EventKind) -> list[Event]:
        found: list[Event] = []
        for ring in self.rings.glob("*.ring"):
            reader = RingReader(ring)
            reader._at = 0  # from the beginning, however often
            taken = reader.read_new()
            for event in taken:
                event.fields["pid"] = int(ring.name.partition("-")[0])
            found += taken
            reader.close()
        return sorted((one for one in found if one.kind in kinds), key=lambda one: one.mono_ns)

    def wait_for(self, kind: EventKind, count: int) -> list[Event]:
        """The events of a kind, once there are so many: servers end a request after the client has its answer."""

        def look() -> list[Event] | None:
            found = self.events(kind)
            return found if len(found) >= count else None

        return until(look, kind)


def until(look: Callable[[], Result | None], what: object) -> Result:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if (found := look()) is not None:
                return found
        time.sleep(0.01)
    raise AssertionError(f"not within {LIMIT:g} s: {what}")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def begin(program: str) -> Served:
        (tmp_path / "shop.py").write_text(FLASK)
        (tmp_path / "api.py").write_text(FASTAPI)
        file = tmp_path / "program.py"
        file.write_text(program)
        rings = tmp_path / "rings"
        rings.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        environment = os.environ | {
            "PYTHONPATH": f"{INPROCESS}:{tmp_path}",
            "RELIVE_RECORDER": json.dumps({"rings": str(rings)}),
            "DATABASE_PASSWORD": "hunter22",
        }
        log = tmp_path / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, file, str(port)],
                env=environment,
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        served = Served(port, process, rings, log)
        started.append(served)
        until(lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True, "it listens")
        return served

    yield begin
    for served in started:
        served.process.send_signal(signal.SIGTERM)
        try:
            served.process.wait(10)
        except subprocess.TimeoutExpired:
            served.process.kill()
            served.process.wait(10)
        assert "recorder switched off" not in served.log.read_text()


def package_of(event: Event) -> ErrorPackage:
    return read_package(event.data)


@each_server
def test_a_request_is_recorded_and_an_exception_is_a_failure_with_its_frames(serve, server):
    program, kind, streamed = SERVERS[server]
    served = serve(program)
    assert served.ask("POST", "/echo/ann", b"x" * 1000, authorization="Bearer abcdef123") == (
        200,
        served.ask("POST", "/echo/ann", b"y" * 1000)[1],
    )
    assert served.ask("GET", "/stream") == (200, b"one two")
    status, _ = served.ask("POST", "/fail/1386?a=1&token=geheim77", b"amount=7")
    assert status == 500

    # An end is told behind the client's back: threads of a server may tell of two in the other order.
    ended = served.wait_for(EventKind.HANDLING_ENDED, 4)
    begun = served.events(EventKind.HANDLING_STARTED)
    order = [named(one) for one in begun]
    ended.sort(key=lambda one: order.index(named(one)))
    assert [one.fields["target"].partition("?")[0] for one in begun] == [
        "/echo/ann",
        "/echo/ann",
        "/stream",
        "/fail/1386",
    ]
    assert {one.fields["server"] for one in begun} == {kind}
    headers = {name.lower(): value for name, value in begun[0].fields["headers"]}
    assert "<secret:" in headers["authorization"] and "abcdef123" not in headers["authorization"]
    assert [one.data for one in served.events(EventKind.HANDLING_BODY)][:2] == [b"x" * 1000, b"y" * 1000]
    assert [one.fields["status"] for one in ended[:3]] == [200, 200, 200]
    assert json.loads(ended[0].data) == {"name": "ann", "length": 1000}
    assert ended[2].data == streamed

    (failure,) = served.events(EventKind.FAILURE)
    package = package_of(failure)
    assert failure.request == begun[3].request
    assert (package.type, package.text, package.where) == ("builtins.KeyError", "1386", Where.HANDLER)
    assert package.failing_frame().function == "fail"
    assert package.failing_frame().locals["order"] == "1386"
    assert "sk-live-0815" not in failure.data.decode()
    assert "hunter22" not in failure.data.decode()
    request = package.request
    assert request is not None
    assert (request.method, request.server, request.number) == ("POST", kind, failure.request)
    assert request.query["a"] == "1"
    if server in ("django-runserver", "aiohttp"):
        assert request.body == "amount=7"  # the others had not read it
    check_that_concurrent_requests_keep_apart(served)


def check_that_concurrent_requests_keep_apart(served: Served) -> None:
    """Each request's body event bears the number under which it began, whatever runs in between."""
    before = len(served.events(EventKind.HANDLING_ENDED))
    names = [f"n{number}" for number in range(20)]
    threads = [
        threading.Thread(target=served.ask, args=("POST", f"/echo/{name}", name.encode())) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    served.wait_for(EventKind.HANDLING_ENDED, before + len(names))
    target = {named(one): one.fields["target"] for one in served.events(EventKind.HANDLING_STARTED)[before:]}
    assert sorted(target.values()) == sorted(f"/echo/{name}" for name in names)
    bodies = [one for one in served.events(EventKind.HANDLING_BODY) if named(one) in target]
    ended = [one for one in served.events(EventKind.HANDLING_ENDED) if named(one) in target]
    assert len(bodies) == len(ended) == len(names)
    for one in bodies:
        assert target[named(one)] == f"/echo/{one.data.decode()}"
    for one in ended:
        assert target[named(one)] == f"/echo/{json.loads(one.data)['name']}"


def named(event: Event) -> tuple[int, int]:
    """Requests are numbered in each process."""
    return event.fields["pid"], event.request


GARBAGE = """
import gc
def left():
    gc.collect()
    found = sorted({type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("relive_recorder")})
    gc.garbage.clear()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    return {"left": found}
"""
ASKED_FOR_GARBAGE = {
    "fastapi-uvicorn": "from garbage import left\nfrom api import app\napp.get('/garbage')(left)\n" + UVICORN,
    "flask-werkzeug": "from garbage import left\nfrom shop import app\napp.get('/garbage')(left)\n"
    + WERKZEUG,
    "aiohttp": AIOHTTP.replace(
        "web.run_app",
        "import garbage\n"
        "async def left(request):\n"
        "    return web.json_response(garbage.left())\n"
        "app.router.add_get('/garbage', left)\n"
        "web.run_app",
    ),
}


@pytest.mark.parametrize("server", ASKED_FOR_GARBAGE)
def test_nothing_of_a_request_waits_for_the_garbage_collector(serve, tmp_path, server):
    """Else what every request made would lie about in memory, and each commit have more pages that changed."""
    (tmp_path / "garbage.py").write_text(GARBAGE)
    served = serve(ASKED_FOR_GARBAGE[server])
    served.ask("GET", "/garbage")
    for _ in range(3):
        assert served.ask("POST", "/echo/ann", b"x" * 100)[0] == 200
    served.wait_for(EventKind.HANDLING_ENDED, 4)
    assert json.loads(served.ask("GET", "/garbage")[1]) == {"left": []}


def test_a_long_body_lies_in_a_file_beside_the_ring_and_a_long_answer_is_cut(serve):
    served = serve(UVICORN)
    body = bytes(range(256)) * (1 << 12)  # of random bytes some look like a secret now and then
    assert json.loads(served.ask("POST", "/echo/big", body)[1])["length"] == len(body)
    (event,) = served.wait_for(EventKind.HANDLING_BODY, 1)
    assert event.data == b""
    assert event.fields["bytes"] == len(body)
    assert (served.rings / event.fields["file"]).read_bytes() == body
    heartbeat = served.rings / "agent.alive"
    heartbeat.touch()
    os.utime(heartbeat, ns=(time.monotonic_ns() - 61_000_000_000,) * 2)
    served.ask("POST", "/echo/without-an-agent", body)
    event = served.wait_for(EventKind.HANDLING_BODY, 2)[1]
    assert (event.fields["cut"], event.data) == (len(body) - 4096, body[:4096])
    assert len(list(served.rings.glob("*.body"))) == 1
    heartbeat.unlink()
    for pieces in (1, 3):
        assert len(served.ask("GET", f"/long/{pieces}")[1]) == pieces * 100_018
    for pieces, ended in zip((1, 3), served.wait_for(EventKind.HANDLING_ENDED, 4)[2:], strict=True):
        assert ended.data.startswith(b"password=<secret:")
        assert (len(ended.data), "file" in ended.fields) == (4096, False)
        assert (ended.fields["bytes"], ended.fields["cut"]) == (pieces * 100_018, pieces * 100_018 - 4096)


def test_a_websocket_is_one_request(serve):
    from websockets.sync.client import connect

    served = serve(UVICORN)
    with connect(f"ws://127.0.0.1:{served.port}/ws") as client:
        client.send("hello")
        assert client.recv() == "hello"
    (event,) = served.wait_for(EventKind.HANDLING_ENDED, 1)
    assert (event.fields["messages_in"], event.fields["messages_out"]) == (1, 1)
