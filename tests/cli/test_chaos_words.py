"""What a search for a schedule says to people: what was found and how to have it again, or how sure it is that there is little."""

from __future__ import annotations

from typing import Any

import pytest

from relive.cli.chaos import chaos_lines
from relive.model.chaos import Chaos, Delay, Swap

FOUND = Chaos(
    service="shop",
    incident=None,
    request=4,
    commit="0cb62941fc" + "0" * 54,
    plain=[False, False],
    tried=38,
    clean=37,
    seed=38,
    varied="delays up to 250 ms at 5% of events",
    result="answered with status 500",
    narrowed=True,
    delays=[Delay(place="2:3:1:1", ms=109.4, at="after query 'select' of GET /read")],
    again=(3, 3),
    swap=Swap(first="handling-ended 200 of GET /read", then="query 'update' of GET /move", more=5),
    run=4,
    confidence=0.95,
    replays=51,
    seconds=25.6,
    sentence="under no schedule it passes, with seed 38 it fails",
)


def said(**changes: Any) -> str:
    return "\n".join(chaos_lines(FOUND.model_copy(update=changes)))


def test_what_was_found_is_told_with_the_command_that_has_it_again():
    text = said()
    assert text.startswith("request 4 of shop, from commit 0cb62941fc: under no schedule it passes")
    assert "109.4 ms after query 'select' of GET /read" in text
    assert "5 other pairs changed places, too" in text
    assert "`relive divergence 4.1 4.2`" in text
    assert "`relive replay 0cb62941fc --request 4 --delay 2:3:1:1=109.4`" in text


@pytest.mark.parametrize(
    "changes", [{"narrowed": False}, {"again": (0, 3)}, {"delays": FOUND.delays * 4}, {"delays": []}]
)
def test_what_needs_more_than_a_few_delays_is_had_again_by_its_seed(changes: dict[str, Any]):
    if changes == {"delays": []}:
        changes = {"delays": [], "narrowed": False, "swap": None}
    assert "`relive replay 0cb62941fc --request 4 --seed 38`" in said(**changes)


def test_what_was_found_from_an_earlier_commit_is_had_again_from_there():
    text = said(incident=7, harmed="ee" * 32)
    assert "the nearest commit, eeeeeeeeee: from there it fails each time" in text
    assert "`relive replay 0cb62941fc --request 4 --delay 2:3:1:1=109.4`" in text
    assert "`relive keep 7 --commit 0cb62941fc --expect 'status == 200' --delay 2:3:1:1=109.4`" in text


def test_an_incident_is_named_by_its_number():
    assert "`relive replay 7 --delay 2:3:1:1=109.4`" in said(incident=7)


def test_many_delays_are_cut():
    assert "and 2 more (--json)" in said(delays=FOUND.delays * 12)


def test_nothing_found_says_no_more_than_that():
    text = said(seed=None, sentence="it passes under 58 of 58 schedules")
    assert text.splitlines() == [
        "request 4 of shop, from commit 0cb62941fc: it passes under 58 of 58 schedules",
        "  38 schedules, 51 replays in 25.6 s",
    ]
