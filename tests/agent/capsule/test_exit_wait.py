"""Waiting for the end of a process whose number may be another's by now."""

from __future__ import annotations

import asyncio
import os

from relive.agent.capsule.exit_wait import wait_for_end
from relive.kernel import procfs


def test_a_number_that_was_used_again_means_that_the_process_has_ended():
    async def ended(start_ticks: int) -> bool:
        waiting = wait_for_end(os.getpid(), start_ticks)
        found = waiting.done()
        waiting.cancel()
        await asyncio.sleep(0)
        return found

    own = procfs.read_stat(os.getpid())
    assert own is not None
    assert asyncio.run(ended(own.start_ticks - 1))
    assert not asyncio.run(ended(own.start_ticks))
