"""A FastAPI service in its capsule fails, and ``relive show`` tells it: frames, locals, timeline, commits, recording."""

from __future__ import annotations

import http.client
import json

from .harness import LIMIT, PYTHON, SERVICES, eventually, free_port

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
        found = relive("incidents")
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
