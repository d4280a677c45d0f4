"""One start of a name at a time, and no traces of one that failed."""

from __future__ import annotations

import pytest

from relive.agent.capsule.agent_process import sole_start
from relive.errors import CapsuleExists


def test_who_starts_a_name_that_is_being_started_is_told(tmp_path):
    place = tmp_path / "capsules" / "pay"
    with sole_start(place):
        (place / "life").mkdir()
        with pytest.raises(CapsuleExists, match="'pay' is being started"), sole_start(place):
            pass
    with sole_start(place):
        pass
    assert (place / "life").is_dir()


def test_a_start_that_failed_leaves_no_directory(tmp_path):
    place = tmp_path / "capsules" / "pay"
    with pytest.raises(ValueError, match="no"), sole_start(place):
        raise ValueError("no")
    assert not place.exists()
    assert place.parent.stat().st_mode & 0o777 == 0o700
