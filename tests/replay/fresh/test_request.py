"""Which bytes are sent again."""

from __future__ import annotations

import pytest

from relive.errors import RequestTruncated, UsageError
from relive.recording.events import EventKind
from relive.replay.fresh.request import request_for

from .cases import case, event, started

REQUEST = {"number": 12, "server": "asgi", "method": "POST", "target": "/"}


def test_what_the_proxy_saw_is_sent_as_it_was():
    wire = b"POST /pay HTTP/1.1\r\nhost: a\r\n\r\n"
    made = request_for(case(started(), wire=wire))
    assert (made.data, made.words, made.notes) == (wire, "POST /pay", [])


def test_what_only_the_service_saw_is_made_again_and_says_so():
    body = event(EventKind.HANDLING_BODY, 41, data=b'{"a": 1}', bytes=8)
    headers = [["Host", "a"], ["transfer-encoding", "chunked"], ["cookie", "s=<secret:0123abcd>"]]
    made = request_for(case(started(headers=headers), body))
    assert made.data == (
        b"POST /payments?x=1 HTTP/1.1\r\nHost: a\r\ncookie: s=<secret:0123abcd>\r\ncontent-length: 8\r\n\r\n"
        b'{"a": 1}'
    )
    assert made.notes[1] == "placeholders stand for secrets in the request in its headers cookie"


def test_a_long_body_lies_in_its_file(tmp_path):
    (tmp_path / "7-1.body").write_bytes(b"x" * 10)
    body = event(EventKind.HANDLING_BODY, 41, bytes=10, file="7-1.body")
    assert request_for(case(started(), body, bodies=tmp_path)).data.endswith(b"\r\n\r\n" + b"x" * 10)
    with pytest.raises(RequestTruncated):
        request_for(case(started(), body, bodies=tmp_path / "gone"))


@pytest.mark.parametrize("fields", [{"bytes": 9, "cut": 1}, {"bytes": 9, "file": "../../etc/passwd"}])
def test_a_body_that_was_cut_is_not_sent(fields):
    with pytest.raises(RequestTruncated):
        request_for(case(started(), event(EventKind.HANDLING_BODY, 41, **fields)))


@pytest.mark.parametrize(
    "fields",
    [{"method": "GET /\r\n\r\n"}, {"target": "/ HTTP/1.1\r\nx: y"}, {"target": ""}],
)
def test_nobody_smuggles_a_second_request(fields):
    with pytest.raises(UsageError):
        request_for(case(started(**fields)))


def test_headers_that_are_none_are_left_out():
    pairs = [["host", "a"], ["x", "y\r\nevil: 1"], ["a b", "c"], ["alone"], 7]
    data = request_for(case(started(headers=pairs))).data
    assert data == b"POST /payments?x=1 HTTP/1.1\r\nhost: a\r\n\r\n"


def test_a_failure_outside_of_requests_has_none_and_a_websocket_cannot_be_sent():
    assert request_for(case(request=None, where="main")) is None
    assert request_for(case(request={**REQUEST, "server": "rq"}, where="job")) is None
    with pytest.raises(UsageError):
        request_for(case(started(), request={**REQUEST, "method": "WEBSOCKET"}))


def test_the_error_package_alone_has_the_request_as_well():
    made = request_for(case(request={**REQUEST, "headers": [["host", "a"]], "body": "\u00e9=1"}))
    assert made.data == b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n\xc3\xa9=1"
    assert "made again" in made.notes[0]
    with pytest.raises(RequestTruncated):
        request_for(case(request={**REQUEST, "body": "a", "body_cut": 9}))
