"""A FastAPI service in its capsule fails, and ``relive show`` tells it: frames, locals, timeline, commits, recording."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Relive, free_port

TOKEN = "hunter2hunter2"


def post(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        connection.request("POST", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_a_failure_of_a_real_service_is_told_with_frames_locals_and_timeline(relive, tmp_path):
    port, own = free_port(), free_port()
    command = (PYTHON, "-m", "uvicorn", "--app-dir", SERVICES, "--port", own, "failing_shop:app")
    options = ("--detach", "--name", "shop", "--every", "request")
    listen = ("--listen", f"127.0.0.1:{port}", "--upstream", str(own))
    relive("run", *options, *listen, "--", *map(str, command))
    eventually(lambda: post(port, "/pay/1?currency=EUR") == 200, "the service pays")
    assert post(port, f"/pay/17?currency=XXX&token={TOKEN}") == 500

    def whole() -> dict | None:
        found = relive.incidents()
        if not found:
            return None
        shown = relive("show", str(found[0]["number"]))
        rows = (shown["timeline"] or {}).get("rows", [])
        is_told = shown["package"] and any(
            row["took_ns"] for row in rows if row["kind"] == "handling-started"
        )
        return shown if is_told else None

    shown = eventually(whole, "the incident with what belongs to it")
    package = shown["package"]
    assert (package["type"], package["text"]) == ("builtins.KeyError", "'XXX'")
    own_frames = [frame for frame in package["chain"][0]["frames"] if frame["own"]]
    assert [frame["function"] for frame in own_frames] == ["pay", "in_euro"]
    pay, in_euro = own_frames
    assert pay["locals"]["number"] == "17"
    assert "currency='XXX'" in in_euro["locals"]["order"]
    at = in_euro["line"] - in_euro["source"]["first"]
    assert in_euro["source"]["lines"][at].strip() == "return RATES[order.currency] * amount"

    rows = shown["timeline"]["rows"]
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["request-started"]["result"] == "500 Internal Server Error"
    assert by_kind["handling-started"]["what"].startswith("POST /pay/17")
    assert [row["what"] for row in rows if row["kind"] == "clock"] == ["time.time", "time.time"]
    assert by_kind["failure"]["what"] == "KeyError: 'XXX'"
    assert by_kind["handling-started"]["at_ns"] <= by_kind["clock"]["at_ns"] <= by_kind["failure"]["at_ns"]
    assert {one["role"] for one in shown["commits"]} >= {"before"}
    assert shown["recording"]["request"] == shown["proxied"]["number"]
    assert TOKEN not in json.dumps(shown)

    page, spans, har = (tmp_path / name for name in ("i.html", "i.otlp.json", "i.har"))
    words = ("--html", str(page), "--otlp", str(spans), "--har", str(har))
    relive("show", *words, str(shown["number"]))
    assert "return RATES[order.currency] * amount" in page.read_text()
    assert TOKEN not in page.read_text() + spans.read_text() + har.read_text()
    assert json.loads(har.read_text())["log"]["entries"][0]["response"]["status"] == 500


class Rates(BaseHTTPRequestHandler):
    """Knows the rate of the euro only."""

    def do_GET(self) -> None:
        status, body = (200, b'{"rate": 1.5}') if self.path.startswith("/EUR") else (404, b"no such currency")
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture(scope="module")
def rates() -> Iterator[int]:
    """Its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Rates) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status


@pytest.mark.parametrize("server", ["plain", "flask", "node"])
def test_of_an_exception_that_was_caught_the_answer_the_call_and_what_differs_are_told(
    relive: Relive, rates: int, server: str
) -> None:
    """GIVEN a service that catches what it raises; WHEN a call of it is answered otherwise than before
    THEN the answer's body, the lines and calls of that request, and what was otherwise in the last good one are shown.
    """
    if server == "node" and shutil.which("node") is None:
        pytest.skip("needs node")
    port, own = free_port(), free_port()
    command = ["node", SERVICES / "caught.js"] if server == "node" else [PYTHON, SERVICES / "caught.py"]
    recorded = ["--record-egress"] if server == "node" else []
    listen = ("--listen", f"127.0.0.1:{port}", "--upstream", str(own))
    words = [str(word) for word in (*command, own, rates, server)]
    relive("run", "--detach", "--name", server, "--every", "start", *recorded, *listen, "--", *words)
    eventually(lambda: get(port, "/price/1") == 200, "the service has a price")
    eventually(lambda: relive.commits(server), "a commit")
    assert get(port, "/price/2") == 200
    assert get(port, "/poison") == 200
    assert get(port, "/price/3?day=7") == 500

    def whole() -> dict | None:
        found = relive.incidents(server)
        shown = relive("show", str(found[0]["number"])) if found else None
        # The call's event, and what was answered to it, may come a moment after the incident.
        is_whole = shown and shown["contrast"] and any("404" in one["result"] for one in shown["calls"])
        return shown if is_whole else None

    shown = eventually(whole, "the incident, with the call")
    assert shown["proxied"]["status"] == 500
    assert json.loads(shown["proxied"]["answer_body"]["text"])["currency"] == "XXX"
    lines = {one["stream"]: one["lines"] for one in shown["printed"]}
    assert lines["stdout"] == ["begin /price/3"]
    assert lines["stderr"][-1].startswith("no price: ")
    url = f"GET http://127.0.0.1:{rates}/XXX"
    assert [(one["what"].partition("?")[0], one["result"]) for one in shown["calls"]] == [
        (url, "404 Not Found")
    ]
    found = shown["contrast"]
    assert found["target"] == "/price/2"
    whole_request, *calls = found["differences"]
    assert whole_request["now"].startswith("500 Internal Server Error")
    assert whole_request["then"].startswith("200 OK")
    told = {one["what"].partition("?")[0]: (one["now"], one["then"]) for one in calls}
    assert told[url][0].startswith("404 Not Found")
    assert told[url][1] == "not asked"
    assert shown["next_steps"][0]["command"] == f"relive replay {shown['number']}"
