"""Who finds which server, and who none."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from relive.forkserver import rendezvous
from relive.forkserver.rendezvous import connect, meeting_place, peer_user, started_with
from relive.kernel.namespaces import in_new_network


def test_a_server_gets_no_variable_that_may_be_a_secret():
    given = {
        "RELIVE_STORE_KEY": "1",
        "AWS_SECRET_ACCESS_KEY": "2",
        "PATH": "/bin",
        "LANG": "C",
        "PYTHONHASHSEED": "3",
    }
    assert {name: value for name, value in started_with(given).items() if name in given} == {
        "LANG": "C",
        "PYTHONHASHSEED": "3",
    }


def test_what_counts_at_the_start_of_an_interpreter_has_its_own():
    assert meeting_place({"RELIVE_HOME": "/a"}) == meeting_place({"RELIVE_HOME": "/b", "PATH": "/bin"})
    assert meeting_place({}) != meeting_place({"PYTHONPATH": "/elsewhere"})
    assert meeting_place({}) != meeting_place({"LD_PRELOAD": "/some.so"})


@pytest.mark.real
def test_other_namespaces_have_their_own():
    here = meeting_place({})
    assert in_new_network(lambda: meeting_place({})) != here


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_reach_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
):
    made = tmp_path / "place"
    made.mkdir()
    made.chmod(mode)
    monkeypatch.setattr(rendezvous, "PLACE_OF_ROOT", made)
    with pytest.raises(PermissionError):
        meeting_place({})
    made.chmod(0o700)
    assert meeting_place({}).parent == made


@pytest.mark.real
def test_neither_is_somebody_else_s_nor_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, link = tmp_path / "place", tmp_path / "link"
    made.mkdir(mode=0o700)
    link.symlink_to(made)
    monkeypatch.setattr(rendezvous, "PLACE_OF_ROOT", link)
    with pytest.raises(PermissionError):
        meeting_place({})
    os.chown(made, 65534, 65534)
    monkeypatch.setattr(rendezvous, "PLACE_OF_ROOT", made)
    with pytest.raises(PermissionError):
        meeting_place({})


def test_a_server_of_another_user_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        found = connect(tmp_path / "socket")
        assert found is not None
        with found:
            assert peer_user(found) == os.geteuid()
        monkeypatch.setattr(rendezvous, "peer_user", lambda _connection: 65534)
        assert connect(tmp_path / "socket") is None
    assert connect(tmp_path / "socket") is None
