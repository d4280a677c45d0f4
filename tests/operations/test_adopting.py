"""A unit is run with what was said to ``relive adopt``, as options of ``relive run``; the rest is left to settings."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.operations.observing import ObservedParams
from relive.operations.units import AdoptParams, _options


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({}, []),
        ({"micro": True}, ["--micro"]),
        ({"micro": False}, ["--no-micro"]),
        ({"pause_limit": 0.25, "pause_share": 5}, ["--pause-limit", "0.25", "--pause-share", "5.0"]),
        ({"pause_limit": 0}, ["--pause-limit", "0.0"]),
        ({"budget": "2GB/h,5%"}, ["--budget", "2GB/h,5%"]),
    ],
)
def test_pauses_and_micro_commits_are_handed_on(said, options):
    assert _options(AdoptParams(unit="shop", every="change", **said)) == ["--every", "change", *options]


def test_they_are_options_of_services_that_are_run():
    said = {"micro": True, "pause_limit": 1, "pause_share": 1, "budget": "none"}
    options = [word for word in _options(AdoptParams(unit="shop", **said)) if word.startswith("--")]
    assert {word[2:].replace("-", "_") for word in options} <= set(ObservedParams.model_fields)


def test_a_budget_that_is_none_is_refused_when_the_unit_is_adopted():
    with pytest.raises(UsageError, match="budget"):
        _options(AdoptParams(unit="shop", budget="much"))
