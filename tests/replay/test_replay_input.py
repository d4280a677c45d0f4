"""What is replayed of one recorded request: which commits it can be sent again from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import RequestUnknown, UsageError
from relive.model.commit import CommitId
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter
from relive.replay.replay_input import case_of_request
from relive.store import Store
from store.builders import SECOND, commit

HEAD = b"GET /pay HTTP/1.1\r\nHost: pay\r\n\r\n"
TAKEN_NS = 1_000 * SECOND  # of each commit here


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(Store(settings.store)) as made:
        yield made


def record(settings: Settings, *began_ns: int) -> None:
    """Requests 1, 2 ... that began at these monotonic times, each answered 1 ms later."""
    directory = settings.capsules / "pay" / "L1" / "recording"
    directory.mkdir(parents=True)
    with closing(RecordingWriter(directory)) as writer:
        for number, began in enumerate(began_ns, 1):
            at, later = (began, began), (began + SECOND // 1000, began + SECOND // 1000)
            writer.append(EventKind.REQUEST_STARTED, number, number, HEAD, {}, at=at)
            writer.append(EventKind.REQUEST_ENDED, number, number, b"", {"bytes": 0}, at=at)
            answer = b"HTTP/1.1 200 OK\r\n\r\n"
            writer.append(EventKind.ANSWER_STARTED, number, number, answer, {"status": 200}, at=later)
            writer.append(EventKind.ANSWER_ENDED, number, number, b"", {"bytes": 0}, at=later)


def taken(store: Store, sequence: int | None) -> CommitId:
    return commit(store, wall_ns=2 * TAKEN_NS, sequence=sequence).id


def test_a_commit_taken_while_the_proxy_was_dead_serves_what_came_after_it(settings: Settings, store: Store):
    """GIVEN a commit without a place in the recording, as when its recorder had been killed
    WHEN a request from before and one from after it are to be replayed
    THEN the clock tells them apart, and of the recording nothing before the commit is sent.
    """
    record(settings, TAKEN_NS - SECOND, TAKEN_NS + SECOND)
    of = taken(store, None)
    case = case_of_request(settings, store, of, 2)
    assert [step.exchange.number for step in case.plan.steps] == [2]
    with pytest.raises(RequestUnknown, match="began before commit"):
        case_of_request(settings, store, of, 1)


def test_the_place_in_the_recording_goes_before_the_clock(settings: Settings, store: Store):
    """A request that the recorder had and the service had not is of after the commit, whenever it came."""
    record(settings, TAKEN_NS - SECOND)
    case = case_of_request(settings, store, taken(store, 0), 1)
    assert case.plan.subject == 1
    with pytest.raises(RequestUnknown, match="began before commit"):
        case_of_request(settings, store, taken(store, 4), 1)


def test_a_target_of_which_nothing_was_recorded_is_told_so(settings: Settings, store: Store):
    with pytest.raises(UsageError, match="cannot be replayed") as raised:
        case_of_request(settings, store, taken(store, None), 1)
    assert "no recording of requests of 'pay'" in (raised.value.cause or "")
