"""An exchange of the recording as a value, with no secret left in it."""

from __future__ import annotations

import gzip

import pytest

from relive.incidents.report.masking import Mask
from relive.incidents.report.proxied import masked_exchange
from relive.recording.events import EventKind
from relive.recording.exchanges import ExchangeEnd, Exchanges
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

from .builders import MONO_NS, MS, PROXY_PORT, record_by_proxy


def test_what_the_proxy_saw_is_told_with_secrets_masked(tmp_path):
    record_by_proxy(tmp_path)
    recording = Recording(tmp_path / "capsules" / "pay" / "L1" / "recording")
    one = masked_exchange(Exchanges(recording).by_number(7), Mask())
    assert (one.method, one.target, one.version) == ("POST", "/pay?token=<secret>&x=1", "HTTP/1.1")
    assert dict(one.headers)["authorization"] == "Bearer <secret>"
    assert dict(one.headers)["host"] == "shop"
    assert one.body.text == '{"order": 17, "password": "<secret>"}'
    assert (one.status, one.answer_body.text, one.ended) == (
        500,
        "Internal Server Error",
        ExchangeEnd.ANSWERED,
    )
    assert one.answered_mono_ns == MONO_NS + 24 * MS
    assert one.local_port == PROXY_PORT
    for secret in ("hunter2222", "abcdefgh", "12345678", "correct horse"):
        assert secret not in one.model_dump_json()


@pytest.mark.parametrize(
    ("coding", "body", "shown"),
    [
        (b"gzip", gzip.compress(b"token 4111 1111 1111 1111", mtime=0), "token <secret>"),
        (b"br", b"\x0btoken", ""),
    ],
)
def test_packed_bodies_are_masked_as_well_or_not_shown(tmp_path, coding, body, shown):
    writer = RecordingWriter(tmp_path)
    head = b"POST / HTTP/1.1\r\ncontent-encoding: " + coding + b"\r\n\r\n"
    writer.append(EventKind.REQUEST_STARTED, 1, 1, head)
    writer.append(EventKind.REQUEST_BODY, 1, 1, body)
    writer.append(EventKind.REQUEST_ENDED, 1, 1, b"", {"bytes": len(body)})
    writer.close()
    one = masked_exchange(Exchanges(Recording(tmp_path)).by_number(1), Mask())
    assert one.body.text == shown
    assert one.body.cut == (0 if shown else len(body))
