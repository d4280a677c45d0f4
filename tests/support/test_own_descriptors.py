"""What would harm a later test is told in the test that does it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.own_descriptors import WRONG, pytest_runtest_teardown


def test_what_is_done_to_a_descriptor_of_another_fails_the_test_that_did_it(tmp_path: Path) -> None:
    with (tmp_path / "one").open("w") as one:
        copy = os.dup(one.fileno())
        os.dup2(one.fileno(), copy)
        os.close(copy)
        assert len(WRONG) == 1
        free = os.dup2(one.fileno(), copy)
        os.dup2(free, free)
        os.close(free)
        # A worker of the suite has others' files open, too.
        nobodys = max(map(int, os.listdir("/proc/self/fd"))) + 200
        with pytest.raises(OSError):
            os.close(nobodys)
        os.closerange(nobodys, nobodys + 1)
    with pytest.raises(
        pytest.fail.Exception, match=rf"(?s){copy} was open.*was not open.*whose ever.*test_own_descriptors"
    ):
        pytest_runtest_teardown()
    assert not WRONG
