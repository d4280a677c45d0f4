"""What cannot be committed: a clear error with CRIU's own sentence, and a service that goes on as if nothing had been."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.waiting import eventually

from .harness import PROGRAMS, Process, Refused, Relive, compiled
from .test_c_program import first_round, rounds

Start = Callable[..., Process]


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(PROGRAMS / "holds.c", tmp_path_factory.mktemp("holds"))


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Unix sockets of the host, in /run, where capsules can reach them."""
    made: list[tuple[socket.socket, Path]] = []
    accepted: list[socket.socket] = []

    def listen(kind: int) -> Path:
        path = Path(f"/run/relive-test-{os.getpid()}-{len(made)}.sock")
        sock = socket.socket(socket.AF_UNIX, kind)
        sock.bind(str(path))
        if kind == socket.SOCK_STREAM:
            sock.listen()
            threading.Thread(target=lambda: accepted.append(sock.accept()[0])).start()
        path.chmod(0o666)
        made.append((sock, path))
        return path

    yield listen
    for sock in accepted:
        sock.close()
    for sock, path in made:
        sock.close()
        path.unlink()


def refused(relive: Relive, target: str, reading: Callable[[], str]) -> Refused:
    """The commit is refused, with nothing stored and the service unharmed."""
    eventually(lambda: reading() != "", "the program's first words")
    with pytest.raises(Refused) as caught:
        relive.commit(target)
    assert caught.value.code == "target-undumpable" and "CRIU" in caught.value.cause
    assert relive("log") == []
    last = rounds(reading())[-1]
    assert eventually(lambda: rounds(reading())[-1] > last, "it goes on")
    return caught.value


def attach(start: Start, tmp_path: Path, *command: str | Path) -> tuple[str, Callable[[], str]]:
    with (tmp_path / "out").open("w") as out:
        process = start(*command, stdout=out)
    return f"pid:{process.pid}", (tmp_path / "out").read_text


def test_io_uring_of_a_process_that_was_not_started_in_a_capsule(
    relive: Relive, start: Start, holds: Path, tmp_path: Path
) -> None:
    error = refused(relive, *attach(start, tmp_path, holds, "ring"))
    assert "io_uring" in error.message and "relive run" in error.remedy


def test_a_full_table_of_descriptors(relive: Relive, holds: Path) -> None:
    capsule = relive.run(holds, "descriptors")
    error = refused(relive, capsule.name, lambda: relive.output(capsule))
    assert "descriptors" in error.message and "RLIMIT_NOFILE" in error.remedy


def test_a_stream_to_a_process_outside(relive: Relive, holds: Path, listener: Callable[[int], Path]) -> None:
    capsule = relive.run(holds, "stream", listener(socket.SOCK_STREAM))
    error = refused(relive, capsule.name, lambda: relive.output(capsule))
    assert "unix socket whose other end" in error.message


def test_two_identities_at_once_where_limits_cannot_be_read(relive: Relive, holds: Path) -> None:
    capsule = relive.run(holds, "identity")
    eventually(lambda: relive.output(capsule) != "")
    if _has_sys_resource():
        first_round(relive.restore(relive.commit(capsule)))
        return
    error = refused(relive, capsule.name, lambda: relive.output(capsule))
    assert "another user" in error.message


def _has_sys_resource() -> bool:
    held = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    return bool(held >> 24 & 1)  # CAP_SYS_RESOURCE


def test_datagrams_to_a_process_outside(relive: Relive, holds: Path, listener: Callable[[int], Path]) -> None:
    """As to a system log: committed, and in the branch they go nowhere."""
    capsule = relive.run(holds, "datagrams", listener(socket.SOCK_DGRAM))
    eventually(lambda: relive.output(capsule) != "")
    branch = relive.restore(relive.commit(capsule))
    first_round(branch)
    eventually(
        lambda: "round 1" in branch.inner.log("datagrams-0").read_text(), "what it sends is noted down"
    )
