"""How long a death is waited for; deaths themselves are seen in tests/real/test_failures.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relive.model.outcome import End
from relive.recording.exchanges import ExchangeEnd
from relive.replay.deaths import seconds_left_to_die

from .test_plan import exchange

_SECOND = 1_000_000_000


def test_a_death_is_waited_for_shortly_once_its_request_is_answered() -> None:
    """GIVEN a request that broke after 0.2 s, when the service died WHEN it is answered THEN a death counts for a second more."""
    fatal = replace(
        exchange(7, 110, 120),
        ended=ExchangeEnd.BROKEN,
        started_mono_ns=_SECOND,
        ended_mono_ns=_SECOND * 6 // 5,
    )
    assert seconds_left_to_die(fatal, End.ANSWERED, 9 * _SECOND) == pytest.approx(1.1)
    never_ended = replace(fatal, ended=ExchangeEnd.OPEN, ended_mono_ns=None)
    assert seconds_left_to_die(never_ended, End.ANSWERED, 2 * _SECOND) == pytest.approx(3.5)


@pytest.mark.parametrize(
    ("ended", "came"),
    [
        (ExchangeEnd.ANSWERED, End.ANSWERED),  # the service died after it
        (ExchangeEnd.UPGRADED, End.ANSWERED),
        (ExchangeEnd.BROKEN, End.BROKEN),
        (ExchangeEnd.BROKEN, End.NO_ANSWER),
    ],
)
def test_a_death_has_its_whole_time_where_the_answer_tells_nothing_of_it(
    ended: ExchangeEnd, came: End
) -> None:
    fatal = replace(exchange(7, 110, 120), ended=ended)
    assert seconds_left_to_die(fatal, came, _SECOND) is None
