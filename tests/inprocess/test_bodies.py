"""Bodies that come in pieces."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.bodies import CountedBody
from relive_recorder.recorder import recorder
from relive_recorder.scrub import Scrubber

sys.path.remove(str(INPROCESS))


@pytest.mark.parametrize("limit", [1, 100, 5000])
def test_of_a_long_body_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(recorder, "options", SimpleNamespace(inline_bytes=64 << 10, body_bytes=limit))
    monkeypatch.setattr(recorder, "scrubber", Scrubber())
    body = CountedBody()
    for _ in range(3):
        body.add(b"x" * 2000)
    fields, kept = body.for_event()
    assert kept == b"x" * min(limit, 4096)
    assert fields == {"bytes": 6000, "cut": 6000 - len(kept)}
