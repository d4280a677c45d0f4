"""Micro-commits are taken as asked, as set, or else where a service is committed so often that its pauses matter."""

from __future__ import annotations

import pytest

from relive.model.commit_policy import parse_every
from relive.operations.micro_choice import choose_micro

FREQUENT = ("request", "change", "999ms", "10ms", "0.5s")
SELDOM = ("1s", "1000ms", "30s", "2m", "deploy", "start", "never")


def choose(
    every: str, asked: bool | None = None, setting: bool | None = None, why: str | None = None
) -> tuple[bool | None, str | None]:
    found = choose_micro(parse_every(every), asked, setting=setting, hindrance=lambda: why)
    return found.micro, found.full_because


@pytest.mark.parametrize(
    ("rates", "wanted"), [(FREQUENT, (True, None)), (SELDOM, (False, None))], ids=["frequent", "seldom"]
)
def test_how_often_it_is_committed_decides_where_nobody_did(
    rates: tuple[str, ...], wanted: tuple[bool, str | None]
) -> None:
    assert {every: choose(every) for every in rates} == dict.fromkeys(rates, wanted)


@pytest.mark.parametrize("every", [*FREQUENT, *SELDOM])
@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize("setting", [True, False])
def test_what_is_said_counts_before_what_is_set_and_both_before_how_often(
    every: str, asked: bool | None, setting: bool
) -> None:
    assert choose(every, asked, setting) == (setting if asked is None else asked, None)


@pytest.mark.parametrize("every", [*FREQUENT, *SELDOM])
def test_what_is_set_and_cannot_be_had_is_said_like_what_is_chosen(every: str) -> None:
    assert choose(every, None, True, "no userfaultfd") == (False, "no userfaultfd")


def test_where_none_can_be_taken_the_reason_is_kept() -> None:
    found = {every: choose(every, why="no userfaultfd") for every in (*FREQUENT, *SELDOM)}
    assert found == dict.fromkeys(FREQUENT, (False, "no userfaultfd")) | dict.fromkeys(SELDOM, (False, None))


def test_the_host_is_not_asked_where_it_does_not_matter() -> None:
    def ask() -> str:
        pytest.fail("it is asked")

    assert not choose_micro(parse_every("30s"), None, setting=None, hindrance=ask).micro
    assert choose_micro(parse_every("request"), True, setting=None, hindrance=ask).micro
