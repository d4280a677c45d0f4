"""Bodies in a model: text where it is text, bounded, and what is missing is counted."""

from __future__ import annotations

import base64

from relive.incidents.report.body import ReportBody


def test_text_is_text_and_other_bytes_are_base64():
    assert ReportBody.of("ü".encode()).text == "ü"
    other = ReportBody.of(b"\xff\x00")
    assert (other.text, base64.b64decode(other.base64 or ""), other.size) == (None, b"\xff\x00", 2)
    assert other.words() == "(2 bytes that are no text)"


def test_a_long_body_is_cut_and_the_cut_may_go_through_a_character():
    body = ReportBody.of("ü".encode() * 40_000 + b"x")
    assert (body.size, body.cut) == (80_001, 80_001 - 65_536)
    assert body.text == "ü" * 32_768
    assert ReportBody.of(b"x" + "ü".encode() * 40_000).text == "x" + "ü" * 32_767
    assert body.words().endswith(f"… {80_001 - 65_536} bytes more")


def test_what_the_recorder_did_not_keep_is_missing_too():
    body = ReportBody.of(b"abc", size=10, file="7-1.body")
    assert (body.text, body.size, body.cut, body.file) == ("abc", 10, 7, "7-1.body")
    assert ReportBody.of(b"").is_empty
