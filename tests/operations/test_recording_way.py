"""What records requests: packets, unless something has to hold them, clients are pointed elsewhere, or packets cannot be taken."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.model.capsule import CaptureWay
from relive.operations.recording_way import RecordingWay, choose_way

BESIDE, PROXY = CaptureWay.BESIDE, CaptureWay.PROXY


def choose(
    asked: CaptureWay | None, *, upstream: bool = False, holds: bool = False, why: str | None = None
) -> RecordingWay:
    return choose_way(asked, has_upstream=upstream, holds=holds, hindrance=lambda: why)


def test_packets_are_what_nobody_has_to_ask_for() -> None:
    assert choose(None) == choose(BESIDE) == RecordingWay(BESIDE)


def test_with_an_upstream_the_proxy_stands_where_clients_connect() -> None:
    assert choose(None, upstream=True) == choose(PROXY, upstream=True, holds=True) == RecordingWay(PROXY)


def test_what_holds_requests_takes_the_own_port_of_the_service() -> None:
    assert choose(None, holds=True) == choose(PROXY) == RecordingWay(PROXY, stands_in=True)


def test_where_packets_cannot_be_taken_a_proxy_does_it_and_the_reason_is_kept() -> None:
    assert choose(None, why="no CONFIG_PACKET") == RecordingWay(PROXY, True, "no CONFIG_PACKET")


def test_what_was_asked_for_does_not_become_something_else() -> None:
    """The recorder says itself why it does not start, and is tried again."""
    assert choose(BESIDE, why="no CONFIG_PACKET") == RecordingWay(BESIDE)


@pytest.mark.parametrize("what", [{"upstream": True}, {"holds": True}])
def test_packets_are_not_held_nor_sent_elsewhere(what: dict[str, bool]) -> None:
    with pytest.raises(UsageError, match="--capture proxy"):
        choose(BESIDE, **what)
