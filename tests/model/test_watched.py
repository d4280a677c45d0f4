"""What a watch was asked for is read back from the file of its life."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from relive.errors import UsageError
from relive.model.commit_policy import parse_every
from relive.model.watched import WatchFacts, WatchSpec, check_pattern


def test_a_watch_is_read_back_as_it_was_written() -> None:
    spec = WatchSpec(
        policy=parse_every("10s"), patterns=["out of (memory|space)"], log_files=["/var/\udcff.log"]
    )
    facts = WatchFacts(
        spec=spec,
        engine="unit",
        id="shop.service",
        name="shop",
        command=["shop"],
        directory="/srv",
        rings=None,
        began="2026-01-01T00:00:00Z",
        environment={},
    )
    assert WatchFacts.model_validate_json(facts.model_dump_json()) == facts


def test_what_is_no_pattern_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="--log-pattern cannot be") as raised:
        check_pattern("(")
    assert raised.value.cause and raised.value.remedy
    with pytest.raises((UsageError, ValidationError)):
        WatchSpec(policy=parse_every("never"), patterns=["("])
