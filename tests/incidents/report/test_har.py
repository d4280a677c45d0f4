"""HAR 1.2, by the fields that its specification calls required, of the right types."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from relive.incidents.report.har import har_of

# Required fields and their types; a list of one shape is a list of such objects.
PAIR = {"name": str, "value": str}
ENTRY: dict[str, Any] = {
    "startedDateTime": str,
    "time": (int, float),
    "request": {
        "method": str,
        "url": str,
        "httpVersion": str,
        "cookies": [PAIR],
        "headers": [PAIR],
        "queryString": [PAIR],
        "headersSize": int,
        "bodySize": int,
    },
    "response": {
        "status": int,
        "statusText": str,
        "httpVersion": str,
        "cookies": [PAIR],
        "headers": [PAIR],
        "content": {"size": int, "mimeType": str},
        "redirectURL": str,
        "headersSize": int,
        "bodySize": int,
    },
    "cache": {},
    "timings": {"send": (int, float), "wait": (int, float), "receive": (int, float)},
}
POST_DATA = {"mimeType": str, "params": [PAIR], "text": str}
HAR = {"log": {"version": str, "creator": {"name": str, "version": str}, "entries": [ENTRY]}}
OPTIONAL = {"comment", "postData", "text", "encoding", "_error"}


def check(value: Any, shape: Any, where: str = "har") -> None:
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        assert set(shape) <= set(value) <= set(shape) | OPTIONAL, where
        for name, inner in shape.items():
            check(value[name], inner, f"{where}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for item in value:
            check(item, shape[0], f"{where}[]")
    else:
        assert isinstance(value, shape), where


def entries(har: dict[str, Any]) -> list[dict[str, Any]]:
    check(har, HAR)
    for entry in har["log"]["entries"]:
        assert datetime.fromisoformat(entry["startedDateTime"]).tzinfo is not None
        assert entry["time"] == sum(entry["timings"].values())
        if "postData" in entry["request"]:
            check(entry["request"]["postData"], POST_DATA)
    return list(har["log"]["entries"])


def test_the_request_that_came_in_and_the_calls_that_went_out(told):
    incoming, unavailable, timed_out = entries(har_of(told()))
    assert incoming["request"]["url"] == "http://shop/pay?token=<secret>&x=1"
    assert incoming["request"]["postData"]["text"] == '{"order": 17, "password": "<secret>"}'
    assert incoming["response"]["content"]["text"] == "Internal Server Error"
    assert (incoming["timings"]["wait"], incoming["timings"]["receive"]) == (24.0, 0.5)
    assert unavailable["request"]["queryString"] == [{"name": "day", "value": "1"}]
    assert {"name": "user-agent", "value": "httpx"} in unavailable["request"]["headers"]
    assert (unavailable["response"]["status"], unavailable["response"]["statusText"]) == (
        503,
        "Service Unavailable",
    )
    assert unavailable["response"]["content"]["text"] == "too busy"
    assert timed_out["response"]["status"] == 0
    assert timed_out["response"]["_error"] == "TimeoutError: timed out"
    assert timed_out["time"] == 10.0


def test_without_a_proxy_the_request_is_told_as_it_was_handled(told):
    incoming, *calls = entries(har_of(told(proxy=False)))
    assert incoming["request"]["method"] == "POST"
    assert incoming["request"]["postData"]["text"] == '{"order": 17}'
    assert incoming["response"]["status"] == 500
    assert incoming["response"]["content"]["text"] == "Internal Server Error"
    assert len(calls) == 2


def test_without_any_http_there_are_no_entries(told):
    assert entries(har_of(told(inside=False, proxy=False))) == []


def test_no_secret_comes_out(told):
    text = str(har_of(told()))
    for secret in ("hunter2222", "abcdefgh", "12345678", "correct horse"):
        assert secret not in text
