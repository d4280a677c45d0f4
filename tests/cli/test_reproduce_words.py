"""What `relive reproduce` says, and the exit status it ends with."""

from __future__ import annotations

import pytest

from relive.cli.reproduce_cmd import describe
from relive.model.reproduction import Attempt, Raised, Reproduction, ReproductionKind, Tree
from relive.operations.reproductions import reproduction_status

REPRODUCED, NOT = ReproductionKind.REPRODUCED, ReproductionKind.NOT_REPRODUCED
DIVERGED, FAILED = ReproductionKind.DIVERGED, ReproductionKind.COULD_NOT_START
KEY = Raised(
    type="builtins.KeyError",
    text="'CHF'\nmore",
    fingerprint="ab",
    file="/srv/shop.py",
    line=12,
    function="pay",
)


def reproduction(*attempts: Attempt, **more: object) -> Reproduction:
    facts = {
        "service": "shop",
        "incident": 17,
        "command": ["uvicorn", "shop:app"],
        "directory": "/srv",
        "user": "shop",
        "tree": Tree(words="revision c0ffee of /srv, the recorded one"),
        "request": "POST /pay",
        "recorded": KEY,
        "recorded_status": 500,
        "placeholders": ["TOKEN"],
        "notes": [],
    } | more
    return Reproduction.model_validate({**facts, "attempts": list(attempts)})


def test_a_failure_that_came_again():
    attempt = Attempt(
        number=1, kind=REPRODUCED, raised=KEY, status=500, packets_left=0, refused=2, ready_seconds=0.6482
    )
    assert describe(reproduction(attempt)) == "\n".join(
        [
            "incident 17 of shop: reproduced 1 of 1 in a fresh process",
            "  started:  uvicorn shop:app",
            "  in:       /srv, as shop",
            "  files:    revision c0ffee of /srv, the recorded one",
            "  request:  POST /pay",
            "  recorded: KeyError: 'CHF' at /srv/shop.py:12 in pay, answered with status 500",
            "  secrets:  placeholders stand in TOKEN; --env and --env-file supply values",
            "  attempt 1: reproduced: KeyError: 'CHF' at /srv/shop.py:12 in pay, answered with status 500; "
            "ready after 648.2 ms; 0 packets left, 2 refused",
        ]
    )


def test_a_service_that_did_not_start_shows_its_own_words():
    attempt = Attempt(
        number=1,
        kind=FAILED,
        difference="it ended with status 1",
        exit_status=1,
        log=["Traceback", "KeyError: 'X'"],
    )
    text = describe(reproduction(attempt, request=None, recorded_status=None, placeholders=[], user=None))
    assert (
        text.splitlines()[0] == "incident 17 of shop: could not start, reproduced 0 of 1 in a fresh process"
    )
    assert "  request:  none, the program is only run" in text
    assert text.endswith("Its standard error:\n  Traceback\n  KeyError: 'X'")


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([REPRODUCED, REPRODUCED], 0),
        ([NOT, NOT], 1),
        ([NOT, FAILED], 1),
        ([REPRODUCED, NOT], 10),
        ([DIVERGED], 10),
        ([REPRODUCED, FAILED], 10),
        ([FAILED, FAILED], 6),
    ],
)
def test_exit_statuses_are_those_of_replay(kinds, status):
    assert reproduction_status(reproduction(*(Attempt(number=1, kind=kind) for kind in kinds))) == status
