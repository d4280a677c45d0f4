"""http.client and urllib.request, in every Python: recorded on a real server, and answered when it is gone."""

from __future__ import annotations

import json
from pathlib import Path

from relive.recording.events import EventKind

from .conftest import each_python

HERE = Path(__file__).parent
PROGRAM = """
import http.client, io, sys, urllib.request
sys.path.insert(0, {here!r})
from upstream import PATHS, Upstream
from twice import Twice
upstream = Upstream()
address = "127.0.0.1:%d" % upstream.port

def patience(path):
    return 0.3 if path == "/silent" else 60  # [s] the machine may be busy: who is not silent is waited for

def by_client(path, method="GET", body=None, headers={{}}):
    connection = http.client.HTTPConnection(address, timeout=patience(path))
    connection.request(method, path, body, {{"Authorization": "Bearer planted-token", "X-Mine": "1", **headers}})
    answer = connection.getresponse()
    return answer.status, answer.reason, answer.getheaders(), len(answer.read()), answer.isclosed()

def by_urllib(path):
    with urllib.request.urlopen("http://" + address + path, b"password=planted-form", timeout=patience(path)) as answer:
        return answer.status, answer.headers.items(), len(answer.read()), answer.geturl()

def line_by_line():
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/chunked")
    answer = connection.getresponse()
    into = bytearray(3)
    return answer.readinto(into), into, answer.read1(4), answer.read()

def twice_on_one_connection():
    connection = http.client.HTTPConnection(address, timeout=60)
    for path in ("/json", "/chunked"):
        connection.request("GET", path)
        yield connection.getresponse().read()

def refused():
    return http.client.HTTPConnection("127.0.0.1:1", timeout=60).request("GET", "/")

calls = [("client " + path, lambda path=path: by_client(path)) for path in PATHS]
calls += [("urllib " + path, lambda path=path: by_urllib(path)) for path in PATHS]
calls += [
    ("head", lambda: by_client("/json", "HEAD")),
    ("file", lambda: by_client("/json", "PUT", io.BytesIO(b"from a file"), {{"Content-Length": "11"}})),
    ("chunks", lambda: by_client("/json", "POST", iter([b"one", b"two"]))),
    ("cookie", lambda: by_client("/cookie")[0]),
    ("secret", lambda: by_client("/echo")[0]),  # in a replay its placeholder comes, which is of another length
    ("lines", line_by_line),
    ("kept alive", lambda: list(twice_on_one_connection())),
    ("refused", refused),
]
Twice(("http-call",)).run(calls, upstream.close)
"""


@each_python
def test_what_was_recorded_comes_back(run_recorded, python):
    ran = run_recorded(PROGRAM.format(here=str(HERE)), python)
    assert (ran.status, ran.err) == (0, "")
    for name, before, after, recorded, played, unasked in json.loads(ran.out):
        assert after == before, name
        assert played == recorded, name
        assert recorded, name
        assert unasked == 0, name
    told = {name: recorded for name, _, _, recorded, _, _ in json.loads(ran.out)}
    assert told["client /reset"][0][1]["stage"] == "answer"
    assert told["client /half-then-reset"][0][1]["stage"] == "body"
    assert told["client /silent"][0][1]["error"]["text"] == "timed out"
    assert told["refused"][0][1]["stage"] == "connect"
    assert told["chunks"][0][1]["asked"]["body"] == "onetwo"
    assert told["client /chunked"][0][1]["pieces"] == [5, 6]
    assert len(told["urllib /redirect"]) == len(told["kept alive"]) == 2


def test_no_secret_and_no_long_body_is_in_the_ring(run_recorded, tmp_path):
    ran = run_recorded(PROGRAM.format(here=str(HERE)))
    kept = b"".join(path.read_bytes() for path in (tmp_path / "rings").iterdir())
    assert b"planted" not in kept
    big = [event for event in ran.of(EventKind.HTTP_CALL) if event.fields.get("bytes") == 10 << 20]
    assert big
    assert all("file" in event.fields and event.data == b"" for event in big)
