"""The line over which process 1 reports while namespaces are made; the processes themselves are tested by tests/real."""

from __future__ import annotations

import time

import pytest

from relive.errors import CapsuleStartFailed, RestoreFailed
from relive.sandbox.spawn import SpawnChannel


@pytest.fixture
def channel():
    made = SpawnChannel()
    yield made
    made.close()


def test_values_arrive_as_they_were_sent(channel):
    channel.send_values({"pid": 7})
    assert channel.receive(time.monotonic() + 10) == {"pid": 7}


def test_an_error_of_relive_arrives_as_itself(channel):
    channel.send_error(RestoreFailed("it broke", cause="worn out", remedy="buy another"))
    with pytest.raises(RestoreFailed) as raised:
        channel.receive(time.monotonic() + 10)
    assert raised.value.args == ("it broke", "worn out", "buy another")


def test_any_other_error_arrives_as_a_failed_start(channel):
    channel.send_error(ValueError("no such thing"))
    with pytest.raises(CapsuleStartFailed, match="ValueError: no such thing"):
        channel.receive(time.monotonic() + 10)


def test_a_report_that_does_not_come_in_time_is_none(channel):
    assert channel.receive(time.monotonic()) is None
