"""Against another reader of the same file."""

from __future__ import annotations

import psutil

from relive.kernel.meminfo import read_meminfo


def test_it_says_what_psutil_says() -> None:
    before, found, after = psutil.virtual_memory(), read_meminfo(), psutil.virtual_memory()
    assert found.total == before.total
    slack = found.total // 10  # others take and give memory meanwhile
    assert (
        min(before.available, after.available) - slack
        < found.available
        < max(before.available, after.available) + slack
    )
