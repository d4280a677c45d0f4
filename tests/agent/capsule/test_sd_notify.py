"""Messages of services to systemd, passed on over real sockets."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys

import pytest

from relive.agent.capsule.sd_notify import NotifyAccess, NotifyRelay, passed_on


@pytest.fixture
def systemd(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "systemd"))
        heard.settimeout(10)
        yield heard


def test_all_is_passed_on_but_the_number_of_a_process():
    assert passed_on(b"READY=1\nMAINPID=2\nSTATUS=on port 80\n") == b"READY=1\nSTATUS=on port 80"
    assert passed_on(b"MAINPID=2") == b""
    assert passed_on(b"STATUS=MAINPID=2") == b"STATUS=MAINPID=2"
    assert passed_on(b"") == b""


def test_messages_come_from_here_in_their_order_with_their_descriptors(systemd, tmp_path):
    (tmp_path / "io").mkdir()
    relay = NotifyRelay(str(tmp_path / "systemd"), NotifyAccess.MAIN)
    relay.listen(tmp_path / "io")
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.connect(str(tmp_path / "io/notify"))
        service.send(b"READY=1")  # before anybody passes it on
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing]))]
        service.sendmsg([b"BARRIER=1"], rights)
        relay.begin(os.getpid())
        assert systemd.recv(100) == b"READY=1"
        text, (given,), _, _ = socket.recv_fds(systemd, 100, 1)
        assert text == b"BARRIER=1"
        os.write(given, b"x")
        assert os.read(reading, 1) == b"x"
        service.send(b"STOPPING=1")
        relay.close()
        assert systemd.recv(100) == b"STOPPING=1", "what had come is passed on"
    for descriptor in (reading, writing, given):
        os.close(descriptor)
    assert not (tmp_path / "io/notify").exists()


@pytest.mark.parametrize(("access", "heard"), [(NotifyAccess.MAIN, [b"2"]), (NotifyAccess.ALL, [b"1", b"2"])])
def test_other_processes_are_heard_only_where_the_unit_says_so(systemd, tmp_path, access, heard):
    (tmp_path / "io").mkdir()
    relay = NotifyRelay(str(tmp_path / "systemd"), access)
    relay.listen(tmp_path / "io")
    say = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'1', sys.argv[1])"
    subprocess.run([sys.executable, "-c", say, tmp_path / "io/notify"], check=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.sendto(b"2", str(tmp_path / "io/notify"))
    relay.begin(os.getpid())
    assert [systemd.recv(100) for _ in heard] == heard
    relay.close()


def test_a_systemd_that_is_gone_is_no_trouble(tmp_path):
    relay = NotifyRelay("@relive-test-nobody-listens-here", NotifyAccess.MAIN)
    relay.notify("READY=1")
    relay.close()
