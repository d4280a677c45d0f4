"""An exchange of the recording as a value, with no secret left in it."""

from __future__ import annotations

from relive.analyse.masking import Mask
from relive.analyse.proxied import masked_exchange
from relive.record.exchanges import Ended, Exchanges
from relive.record.reading import Recording

from .builders import MONO_NS, MS, PROXY_PORT, record_by_proxy


def test_what_the_proxy_saw_is_told_with_secrets_masked(tmp_path):
    record_by_proxy(tmp_path)
    recording = Recording(tmp_path / "capsules" / "pay" / "L1" / "recording")
    one = masked_exchange(Exchanges(recording).by_number(7), Mask())
    assert (one.method, one.target, one.version) == ("POST", "/pay?token=<secret>&x=1", "HTTP/1.1")
    assert dict(one.headers)["authorization"] == "<secret>"
    assert dict(one.headers)["host"] == "shop"
    assert one.body.text == '{"order": 17, "password": "<secret>"}'
    assert (one.status, one.answer_body.text, one.ended) == (500, "Internal Server Error", Ended.ANSWERED)
    assert one.answered_mono_ns == MONO_NS + 24 * MS
    assert one.local_port == PROXY_PORT
    for secret in ("hunter2222", "abcdefgh", "12345678", "correct horse"):
        assert secret not in one.model_dump_json()
