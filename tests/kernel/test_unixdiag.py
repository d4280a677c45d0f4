"""Unix sockets as the kernel lists them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from relive.kernel.unixdiag import unix_sockets


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


def test_both_ends_of_a_pair_name_each_other() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        found = unix_sockets()
        assert found[inode(ours)].peer == inode(theirs) and found[inode(theirs)].peer == inode(ours)
        assert found[inode(ours)].kind == socket.SOCK_SEQPACKET and found[inode(ours)].name == ""
        theirs.close()
        assert unix_sockets()[inode(ours)].peer == 0


def test_who_waits_to_be_accepted_is_with_who_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        client.connect(str(tmp_path / "s"))
        found = unix_sockets()
        assert found[inode(listening)].listens and found[inode(listening)].name == str(tmp_path / "s")
        assert found[inode(client)].peer == inode(listening)
        accepted, _ = listening.accept()
        with accepted:
            assert unix_sockets()[inode(client)].peer == inode(accepted)


def test_abstract_names() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0relive-{os.getpid()}")
        assert unix_sockets()[inode(bound)].name == f"@relive-{os.getpid()}"
