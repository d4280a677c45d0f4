"""One life of a fresh process that ends at the wrong moment; the sandbox is played, the connection is real."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kernel.helpers import needs_root
from relive.model.reproduction import ReproductionKind, Tree
from relive.replay.fresh.attempt_plan import AttemptPlan, ReproduceOptions
from relive.replay.fresh.command import StartCommand
from relive.replay.fresh.life import FreshLife
from relive.replay.fresh.request import SentRequest
from support.ports import free_port

from .cases import case, started

EXITED = 1 << 8  # a raw wait status


class EndingSandbox:
    """Its service was seen to listen once, and has ended since with status 1."""

    root, init = 0, os.getpid()
    wait_status = EXITED

    def __init__(self, directory: Path, port: int, network: int) -> None:
        self.network = network
        self._ports = [{port}]
        self._directory = directory
        self.place = SimpleNamespace(log=lambda name: directory / name)
        self.groups = SimpleNamespace(oom_kills=lambda: 0)

    def listening_ports(self) -> set[int]:
        return self._ports.pop() if self._ports else set()

    def seal(self) -> Any:
        return SimpleNamespace(packets_left=0, refused=0)


@needs_root
def test_a_service_that_ended_right_after_it_listened_could_not_start(tmp_path):
    (tmp_path / "stderr").write_text("Error: connect ECONNREFUSED 127.0.0.1:6379\n")
    port = free_port()
    plan = AttemptPlan(
        case=case(started()),
        start=StartCommand(["node", "a.js"], "/", None, port, "127.0.0.1", []),
        request=SentRequest("GET", "/", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", []),
        environment={},
        tree=Tree(words="the files as they are"),
    )
    drain = SimpleNamespace(drain=lambda: None, run=_runs, events=[], troubles=[])
    watch = SimpleNamespace(own=lambda _port: None, unreached=list, troubles=list)
    with contextlib.closing(os.fdopen(os.open("/proc/self/ns/net", os.O_RDONLY))) as network:
        sandbox = EndingSandbox(tmp_path, port, network.fileno())
        told = cast("Any", (plan, ReproduceOptions(), sandbox, watch, drain, lambda _text: None))
        made = FreshLife(*told).live()
    assert made.kind is ReproductionKind.COULD_NOT_START
    assert made.difference == "it ended with status 1"
    assert made.log == ["Error: connect ECONNREFUSED 127.0.0.1:6379"]


async def _runs() -> None:
    """Nothing is in any ring."""
