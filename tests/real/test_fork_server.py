"""Services whose agents, tracers and proxies come from one fork server, which is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs
from support.fork_servers import OwnServer, own_variable
from support.ports import free_port
from support.waiting import eventually

from .harness import Relive

pytestmark = pytest.mark.real


@pytest.fixture
def server(relive: Relive) -> Iterator[OwnServer]:
    relive.environment |= own_variable()
    made = OwnServer(relive.environment)
    yield made
    made.kill()


def forked_from(server: int | None, home: Path) -> dict[str, int]:
    """Pids of a server's children by the module that each runs; they know this home."""
    found = {}
    for pid in procfs.children_of(server or 0):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if len(words) > 3 and words[3] != b"relive.forkserver":  # not one that was just forked, or has ended
            assert f"RELIVE_HOME={home}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found[words[3].decode()] = pid
    return found


def test_services_go_on_without_it_and_the_next_gets_another(relive: Relive, server: OwnServer) -> None:
    """GIVEN a service; WHEN the fork server is killed; THEN it is committed and restored, its tracer is replaced when it dies, and
    a second service comes from another server.
    """
    addresses = ("--listen", f"127.0.0.1:{free_port()}", "--upstream", f"127.0.0.1:{free_port()}")
    first = relive.run("sleep", "1000", name="first", options=addresses)
    pid = server.pid()
    everything = {"relive.agent", "relive.signals.tracer", "relive.proxies.ingress.proxy"}
    children = eventually(
        lambda: found if (found := forked_from(pid, relive.home)).keys() == everything else None
    )
    assert children["relive.agent"] == relive.agent(first)

    server.kill()
    relive.restore(relive.commit(first, measured=False)).stop()
    os.kill(children["relive.signals.tracer"], signal.SIGKILL)
    another = eventually(server.pid)  # begun when another tracer was wanted
    assert another != pid
    relive.commit(first, measured=False)
    second = relive.run("sleep", "1000", name="second")
    agent = relive.agent(second)
    eventually(lambda: forked_from(another, relive.home)["relive.agent"] == agent)
