"""Params that hold a word of no grammar are never made, and say what its parser says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from relive.errors import UsageError
from relive.operations.replays import ReplayParams
from support.declared import with_grammar


def test_what_the_parser_says_is_what_the_params_say():
    with pytest.raises(UsageError, match="--ignore cannot be 'nonsense'") as raised:
        ReplayParams(what="1", ignore=["event:query", "nonsense"])
    assert raised.value.remedy is not None and "header:NAME" in raised.value.remedy
    with pytest.raises(UsageError, match="--speed"):
        ReplayParams.model_validate_json('{"what": "1", "speed": "fast"}')


def test_what_is_read_stays_as_it_was_written():
    params = ReplayParams(what="1", ignore=["event:query"], on_miss=["http-call=pass"], speed="max")
    assert (params.ignore, params.on_miss, params.speed) == (["event:query"], ["http-call=pass"], "max")


def test_other_types_are_refused_as_ever():
    with pytest.raises(ValidationError):
        ReplayParams(what="1", ignore="event:query")  # type: ignore[arg-type]


def test_words_that_steer_a_verdict_have_a_grammar():
    found = {(operation.name, name) for operation, name, _ in with_grammar()}
    for operation in ("replay", "try", "why", "what-if", "logpoint", "who-wrote"):
        assert {(operation, "ignore"), (operation, "on_miss")} <= found
    assert {("reproduce", "ignore"), ("replay", "speed"), ("keep", "expect"), ("what-if", "answer")} <= found
