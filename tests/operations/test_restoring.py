"""What a restore says of the age of what it restored."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from relive.operations.restoring import _age


def manifest(seconds: int) -> Any:
    return SimpleNamespace(taken_wall_ns=time.time_ns() - seconds * 10**9)


def test_a_restore_says_how_old_its_commit_is_and_whether_a_newer_one_is_under_way():
    assert _age(manifest(15), 0).endswith(", 15 s ago.")
    assert _age(manifest(15), 2).endswith(", 15 s ago; a newer one is not durable yet.")
