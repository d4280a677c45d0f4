"""Sending again, to a service that takes connections and says nothing; the rest is in tests/real/test_replay.py."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from typing import Any

from relive.replay.plan import Pace, Plan
from relive.replay.sender import Sender

from .test_plan import exchange, plan


def test_what_waited_for_a_service_that_died_is_given_up_without_a_word() -> None:
    made: Plan = plan([exchange(1, 110, 120), exchange(2, 130, 140), exchange(3, 150, 160)], subject=3)
    said: list[dict[str, Any]] = []

    async def carry_out(address: tuple[str, int]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
        died = asyncio.Event()
        sender = Sender(os.getpid(), address, {}, pace=Pace.FAST, limit=30.0, cursor=100)
        asyncio.get_running_loop().call_later(0.05, died.set)
        await sender.carry_out(made, died, lambda: None)
        sender.close()
        assert list(sender.answers) == [1]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(carry_out(listener.getsockname()))
    gc.collect()
    assert said == []
