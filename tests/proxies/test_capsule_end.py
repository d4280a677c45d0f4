"""When a recorder ends by itself: its capsule has ended, and no agent is connected."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from relive.proxies import capsule_end
from relive.proxies.capsule_end import stop_when_left

_LONG = 30.0  # [s]


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def _ended() -> int:
    """A process that has ended and was waited for."""
    done = subprocess.Popen(["true"])
    done.wait()
    return done.pid


def test_it_ends_once_the_last_agent_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capsule_end, "_LOOK_AGAIN", 0.0)
    hub: Any = SimpleNamespace(links={"agent"})

    async def run() -> None:
        stop = asyncio.Event()
        watching = asyncio.create_task(stop_when_left(_ended(), hub, stop))
        await _turns()
        assert not stop.is_set()
        hub.links.clear()
        await asyncio.wait_for(stop.wait(), _LONG)
        await watching

    asyncio.run(run())


def test_it_goes_on_while_the_capsule_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capsule_end, "_LOOK_AGAIN", 0.0)
    hub: Any = SimpleNamespace(links=set())

    async def run() -> None:
        stop = asyncio.Event()
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as capsule:
            watching = asyncio.create_task(stop_when_left(capsule.pid, hub, stop))
            await _turns()
            assert not stop.is_set()
            assert capsule.stdin is not None
            capsule.stdin.close()
            await asyncio.wait_for(stop.wait(), _LONG)
        await watching

    asyncio.run(run())


def test_it_goes_on_where_the_capsule_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refused)
    hub: Any = SimpleNamespace(links=set())

    async def run() -> None:
        stop = asyncio.Event()
        watching = asyncio.create_task(stop_when_left(os.getpid(), hub, stop))
        with pytest.raises(OSError, match="Too many"):
            await watching
        assert not stop.is_set()

    asyncio.run(run())
