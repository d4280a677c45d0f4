"""``--every``, read."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.model.commit_policy import Policy, parse_every


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("never", Policy(at_start=False)),
        ("start", Policy(at_start=True)),
        ("change", Policy(at_start=True, seconds=1.0, on_change=True)),
        ("deploy", Policy(at_start=True, seconds=1.0, on_deploy=True)),
        ("10ms", Policy(at_start=True, seconds=0.01)),
        ("request", Policy(at_start=True, each_request=True)),
        ("30s", Policy(at_start=True, seconds=30)),
        ("500ms", Policy(at_start=True, seconds=0.5)),
        ("1.5m", Policy(at_start=True, seconds=90)),
        ("2h", Policy(at_start=True, seconds=7200)),
    ],
)
def test_every_is_a_time_or_a_word(text, policy):
    assert parse_every(text) == policy


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "0s", "0.0m", "-1s", "1 s", "1e3s", "5d", "30S", "Never", "1s\n", "٣s", "9" * 400 + "h"],
)
def test_every_refuses_what_is_neither(text):
    with pytest.raises(UsageError) as caught:
        parse_every(text)
    assert repr(text) in caught.value.message
    assert "30s" in (caught.value.remedy or "")
