"""Whose writes are told where a service has several workers; the replays themselves are in ``real/test_stepping``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relive.incidents.report.masking import Mask
from relive.model.stepping import Written
from relive.operations import who_wrote
from relive.operations.who_wrote import WhoWroteParams
from relive.stepping.following import WriteRecord
from relive.stepping.replaying import Requests


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is told of a replay in which processes 2 and 3 wrote, the latter last."""
    monkeypatch.setattr(who_wrote, "result_words", lambda _: (True, "fails the same"))
    monkeypatch.setattr(who_wrote, "trouble_of", lambda _: None)
    monkeypatch.setattr(who_wrote, "request_words", lambda _: "request 7 (GET /)")
    records = [WriteRecord(pid=pid, before="", after=f"of {pid}", place=None, others=[]) for pid in (2, 3)]
    following = SimpleNamespace(writes=lambda: (records, False), first={2: "first of 2", 3: "first of 3"})

    def tell(requests: Requests) -> Written:
        followed: Any = SimpleNamespace(run=None, following=following, requests=requests)
        incident: Any = SimpleNamespace(number=1, service="shop")
        case: Any = SimpleNamespace(commit="a" * 64)
        params = WhoWroteParams(incident=1, expression="cache")
        return who_wrote._written(incident, case, params, followed, Mask())

    return tell


@pytest.mark.parametrize("process", [2, 3])
def test_the_writes_are_those_of_the_worker_that_had_the_failing_request(written, process):
    found = written(Requests({}, process))
    assert [one.after for one in found.writes] == [f"of {process}"]
    assert (found.first, found.last) == (f"first of {process}", f"of {process}")
    assert found.trouble is None


def test_another_worker_than_in_the_recording_is_told(written):
    assert "another worker" in written(Requests({}, 3, is_elsewhere=True)).trouble


def test_writes_of_several_workers_are_never_told_as_those_of_one(written):
    found = written(Requests({}))
    assert [one.after for one in found.writes] == ["of 2"] and "not known which" in found.trouble
