"""A refused micro-commit says of which process and of what it is: "descriptor 3" alone led nowhere."""

from __future__ import annotations

import socket
import struct

import pytest

from relive.checkpoint.micro_record import FullCommitNeeded, NotNow, RecordedConnection, Seen
from relive.checkpoint.micro_words import naming_process, refusal_words

SEEN = Seen(pid=4711, inside=5)
SEEN.lines = ["fd 3 mode 0 device 0 inode 5 links 1 special 0:0 flags 2 same -1 goal anon_inode:[io_uring]"]
FOUR = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 5432, bytes((10, 0, 0, 7)))
SIX = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16sI", 6379, 0, bytes(15) + b"\1", 0)


def connection(peer: bytes) -> RecordedConnection:
    line = f"=connection 8 77 flags=2 ready=1 sndbuf=1 rcvbuf=2 peek=-1 name=0200 peer={peer.hex()} state=1"
    return RecordedConnection.parse(f"{line} like family=2")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "descriptor 3 cannot be looked into",
            "descriptor 3 of node (pid 5), anon_inode:[io_uring], cannot be looked into",
        ),
        ("descriptor 3 is anon_inode:[io_uring]", "descriptor 3 of node (pid 5) is anon_inode:[io_uring]"),
        ("descriptor 9 is not in the base", "descriptor 9 of node (pid 5) is not in the base"),
        ("its threads have changed", "node (pid 5): its threads have changed"),
    ],
)
def test_a_reason_names_process_and_kind(reason: str, words: str) -> None:
    assert refusal_words(reason, SEEN, "node") == words


def test_a_connection_is_told_by_where_it_leads() -> None:
    seen = Seen(pid=1, inside=1, connections=[connection(FOUR)])
    assert "a TCP connection to 10.0.0.7:5432" in refusal_words("descriptor 8 is connected", seen, None)
    assert connection(SIX).words == "descriptor 8 (a TCP connection to [::1]:6379)"
    assert connection(b"\2\3").words == "descriptor 8 (a TCP connection)"


def test_what_passes_by_itself_still_does() -> None:
    with pytest.raises(NotNow, match=r"descriptor 3 of app \(pid 5\)"), naming_process(SEEN, lambda _: "app"):
        raise NotNow("there is data in descriptor 3")
    with pytest.raises(FullCommitNeeded, match=r"^a process \(pid 5\)"), naming_process(SEEN, lambda _: None):
        raise FullCommitNeeded("it has shadow stacks")
