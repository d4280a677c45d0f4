"""What the recording answered, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from relive.model.outcome import End, Miss, Outcome, Stranger, Stubbed
from relive.recording.events import Event, EventKind
from relive.replay.played import played_words

MISS = Miss(kind="query", asked={}, policy="fail")
OWN = "; clock and randomness within the service were the sandbox's own"


def events(*kinds: str, **fields: Any) -> list[Event]:
    return [Event(seq, 0, 0, EventKind(kind), fields=fields) for seq, kind in enumerate(kinds)]


def given(*kinds: str) -> list[Event]:
    return events(*kinds, played=True)


@pytest.mark.parametrize(
    ("outcome", "inside", "words"),
    [
        ({}, None, f"nothing{OWN}"),
        ({}, [], "nothing"),
        ({}, given("clock", "query", "clock", "log-record"), "2 clock readings and 1 query"),
        ({}, given("random", "http-call", "query"), "1 random value, 1 query and 1 HTTP call"),
        (
            {},
            [*given("random"), *events("random", "clock")],
            "1 random value; 1 clock reading and 1 random value came from the sandbox",
        ),
        ({}, events("query", "file-read", "environment-read"), "nothing"),
        (
            {},
            [*given("query"), *events("query", played=True, simulated=True)],
            "1 query; 1 answer could be worked out without it",
        ),
        (
            {"stubs": Stubbed(continued=1, given=2, simulated=1, missed=0)},
            None,
            f"2 questions at the network; 1 answer could be worked out without it{OWN}",
        ),
        ({"misses": [MISS, MISS]}, [], "nothing; 2 calls without a recorded answer"),
        (
            {"misses": [MISS], "unreached": [Stranger(to="127.0.0.1:1", times=3)]},
            [],
            "nothing; 1 call without a recorded answer and 3 connections to what was not recorded",
        ),
    ],
)
def test_the_line(outcome: dict[str, Any], inside: list[Event] | None, words: str) -> None:
    """Only what is marked as played was answered: a file, SQLite and the environment lie in the sandbox."""
    assert played_words(Outcome(end=End.ANSWERED, **outcome), inside) == f"the recording answered {words}"
