"""What is known of a child of the fork server, at once and whatever becomes of the server."""

from __future__ import annotations

import os
import select
import signal
import socket

import pytest

from relive.forkserver.asking import UNKNOWN, Fork, ask
from relive.forkserver.rendezvous import connect
from relive.forkserver.successor import replace_asker, report_exit
from relive.kernel import procfs
from support.fork_servers import OwnServer
from support.waiting import eventually

TRIAL = "relive.forkserver.trial"


def asked(server: OwnServer, *options: str, ends_with_asker: bool = False) -> Fork:
    server.fork().wait(60)  # it is there
    connection = connect(server.place)
    assert connection is not None
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        fork = ask(
            connection,
            TRIAL,
            options,
            environment=server.environment,
            streams=[nowhere] * 3,
            ends_with_asker=ends_with_asker,
        )
    finally:
        os.close(nowhere)
    assert fork is not None
    return fork


def wait_for_end(fork: Fork) -> None:
    poller = select.poll()
    poller.register(fork, select.POLLIN)
    assert poller.poll(60_000)


@pytest.mark.parametrize(("options", "status"), [(["--exit", "7"], 7), ([], 0)])
def test_its_end_is_known_when_it_can_be_read(server: OwnServer, options: list[str], status: int):
    fork = asked(server, *options)
    wait_for_end(fork)
    assert fork.status() == status
    assert fork.status() == status
    fork.close()
    fork.close()


def test_its_end_is_known_at_once_while_the_server_stands_still(server: OwnServer):
    """Nothing is waited for: who asks may have other things to do."""
    fork, pid = asked(server, "--wait"), server.pid()
    assert pid is not None
    assert fork.status() is None
    os.kill(pid, signal.SIGSTOP)
    try:
        fork.send_signal(signal.SIGTERM)
        wait_for_end(fork)
        assert fork.status() == -signal.SIGTERM
    finally:
        os.kill(pid, signal.SIGCONT)
    fork.close()


def test_its_end_without_the_server_is_that_of_a_kill(server: OwnServer):
    fork = asked(server, "--wait")
    server.kill()
    fork.send_signal(signal.SIGTERM)
    wait_for_end(fork)
    # Whoever takes its end then may not have done so yet.
    assert fork.status() in (UNKNOWN, -signal.SIGTERM)
    fork.close()


def test_its_end_without_the_server_is_what_it_said_itself():
    """GIVEN one that another has reaped already, as process 1 does when the server was killed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        replace_asker(its)
        report_exit(3)
        os._exit(3)
    its.close()
    fork = Fork(pid, os.pidfd_open(pid), ours)
    os.waitpid(pid, 0)
    assert fork.status() == 3
    fork.close()


def test_who_is_gone_leaves_nothing_that_should_end_with_it(server: OwnServer):
    left, ended = asked(server, "--wait"), asked(server, "--wait", ends_with_asker=True)
    handle = os.pidfd_open(ended.pid)
    for fork in (left, ended):
        fork.close()
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    assert poller.poll(60_000)
    os.close(handle)
    stat = procfs.read_stat(left.pid)
    assert stat is not None
    handle = os.pidfd_open(left.pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    eventually(lambda: procfs.read_stat(left.pid) is None)
    os.close(handle)
