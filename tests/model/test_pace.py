"""What a reader is told of a service's pace; ``tests/agent/commits/test_pace.py`` has the sentences."""

from __future__ import annotations

from relive.model.pace import Brake, PaceState


def test_a_state_survives_being_written_down_and_one_that_only_starts_says_nothing():
    state = PaceState(
        wanted_s=None,
        actual_s=None,
        share=0.01,
        expected_us=10,
        basis="estimated from 1 B of memory",
        limit_us=None,
        is_held=False,
        left_out={Brake.STORE: 3},
    )
    assert PaceState.model_validate_json(state.model_dump_json()) == state
    assert state.notes("x") == []
