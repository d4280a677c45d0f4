"""Connections in commits on top of others: what CRIU says of the same moment is the measure. With the real tracker."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.micro_record import read_record
from relive.checkpoint.request_gate import NoRequestGate
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import WatchdogPeriod
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_first
from support.waiting import eventually

from .test_micro_commits import PROGRAMS, TRIES, Taking, Told, kernel_says

Images = dict[str, Any]


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = Taking(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    found = Told(sys.executable, PROGRAMS / "micro_traps.py", tmp_path / "written")
    yield found
    found.end()


class Client:
    """Holds connections to the process."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._address = ("127.0.0.1", int(told.ask("port")))
        self.held: list[socket.socket] = []

    def settle(self) -> None:
        """Wait until all that either end has sent is acknowledged."""
        eventually(lambda: not self._sending(), "that all is acknowledged")

    def _sending(self) -> list[str]:
        port = f":{self._address[1]:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [
            row[4] for row in rows if row[3] == "01" and port in row[1] + row[2] and row[4][:8] != "0" * 8
        ]

    def connect(self) -> socket.socket:
        made = socket.create_connection(self._address)
        self.held.append(made)
        self._told.ask("accept")
        return made


@pytest.fixture
def client(told: Told) -> Iterator[Client]:
    found = Client(told)
    yield found
    for one in found.held:
        one.close()


def images_of(taking: Taking, pid: int) -> tuple[Images, bool]:
    """What a commit says of descriptors, by inode where it has one, and whether it was taken on top of another."""
    taking.micro.reason = "a full commit"
    taken = taking.take(pid)
    images = taken.staging.images
    if taken.held is not None:
        taking.write_out(taken.held, images)
    files = {one.id: one for one in read_entries(images / "files.img", pb.FileEntry)}
    sockets = {}
    for one in files.values():
        if one.HasField("isk"):
            name = images / f"tcp-stream-{one.isk.ino:x}.img"
            sockets[one.isk.ino] = (one.isk, _stream(name) if name.exists() else None)
    [fdinfo] = images.glob("fdinfo-*.img")
    opened = {
        one.fd: (one.flags, one.type, files[one.id].isk.ino)
        for one in read_entries(fdinfo, pb.FdinfoEntry)
        if files[one.id].HasField("isk")
    }
    watched = {
        (row.tfd, row.events, row.data, row.dev, row.inode) for one in files.values() for row in one.epfd.tfd
    }
    for isk, _ in sockets.values():
        isk.id = 0
    taken.discard()
    return {"sockets": sockets, "opened": opened, "watched": watched}, taking.micro.reason is None


def _stream(path: Path) -> tuple[pb.TcpStreamEntry, bytes]:
    entry = read_first(path, pb.TcpStreamEntry)
    entry.ClearField("timestamp")  # goes on
    size = entry.inq_len + entry.outq_len
    return entry, path.read_bytes()[-size:] if size else b""


def on_top(taking: Taking, told: Told) -> Images:
    """Of a commit that was taken on top of another; it is taken once more where a thread did not stop in time."""
    for _ in range(TRIES):
        taking.micro._refusals = 0
        found, is_on_top = images_of(taking, told.pid)
        if is_on_top:
            return found
    pytest.fail(str(taking.micro.reason))


def by_criu(taking: Taking, told: Told) -> Images:
    taking.micro.forget("a full commit is wanted")
    found, is_on_top = images_of(taking, told.pid)
    assert not is_on_top
    return found


def test_connections_are_written_as_criu_writes_them(told: Told, taking: Taking, client: Client) -> None:
    """They move on, come and go, with bytes that wait in either direction; one blocks from now on, as while Java answers."""
    first = client.connect()
    client.connect()
    taking.base(told.pid)
    told.ask("wait for it")
    first.send(b"not read")
    client.connect().send(b"a new one")
    told.ask("hang up")
    told.ask("answer")
    client.settle()
    mine = on_top(taking, told)
    assert mine == by_criu(taking, told)
    assert {isk.flags & os.O_NONBLOCK for isk, stream in mine["sockets"].values() if stream} == {
        0,
        os.O_NONBLOCK,
    }
    waiting = [stream[1] for _, stream in mine["sockets"].values() if stream is not None]
    assert len(waiting) == 2
    assert any(one.startswith(b"a new one") for one in waiting)
    assert client.held[-1].recv(100) == b"answer"


@pytest.mark.skipif(kernel_says() != "ok", reason="the kernel's objects cannot be read here")
def test_connections_that_were_not_asked_are_written_as_criu_writes_them(
    told: Told, taking: Taking, client: Client
) -> None:
    """They go on, and where they stand is read from the kernel's own objects; options that change then are not missed."""
    client.connect()
    made = client.connect()
    taking.base(told.pid)
    for _ in range(3):  # all is asked, and once more, to compare
        on_top(taking, told)
    for _ in range(3):
        made.send(b"asked" * 1000)
        told.ask("take 5000")
        told.ask("answer")
        assert made.recv(100) == b"answer"
        client.settle()
        mine = on_top(taking, told)
        assert not asked(taking)
    assert mine == by_criu(taking, told)
    assert all(stream[1] == b"" for _, stream in mine["sockets"].values() if stream is not None)
    for _ in range(3):
        on_top(taking, told)
    assert not asked(taking)
    told.ask("no delay")
    taking.reasons.clear()
    assert not taking.commit(told.pid)
    assert any("options" in said for said in taking.reasons)


def asked(taking: Taking) -> list[str]:
    """What of the last commit was asked of connections."""
    seen = read_record(taking.micro._directory / "record").seen
    return [
        one
        for one in seen.asked
        if any(one == f"descriptor {known.descriptor}" for known in seen.connections)
    ]


def check_goes_on(before: Images, after: Images) -> None:
    """Of a process that did nothing between: more may have come, and what it sent been acknowledged."""
    assert (before["opened"], before["watched"]) == (after["opened"], after["watched"])
    assert before["sockets"].keys() == after["sockets"].keys()
    for inode, (_, stream) in before["sockets"].items():
        if stream is None:
            continue
        (entry, waiting), (later, waiting_later) = stream, after["sockets"][inode][1]
        received, received_later = waiting[: entry.inq_len], waiting_later[: later.inq_len]
        assert received_later.startswith(received)
        assert (later.inq_seq - entry.inq_seq) % (1 << 32) == len(received_later) - len(received)
        assert waiting[entry.inq_len :].endswith(waiting_later[later.inq_len :])
        for name in ("outq_seq", "opt_mask", "snd_wscale", "rcv_wscale", "mss_clamp"):
            assert getattr(entry, name) == getattr(later, name)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(20))
def test_connections_are_written_as_criu_writes_them_for_long(
    told: Told, taking: Taking, client: Client, seed: int
) -> None:
    """``pytest -m soak tests/checkpoint/test_micro_connections.py``: whatever clients and service did before."""
    chance = random.Random(seed)
    client.connect()
    compared = 0
    for _ in range(25):
        for _ in range(chance.randrange(8)):
            what = chance.choice(["connect", "send", "answer", "echo", "hang up"])
            if what == "connect" or len(client.held) < 2:
                client.connect()
            elif what == "hang up":
                told.ask("hang up")
                client.held.pop(0).close()
            elif what == "answer":
                told.ask("answer")
            else:
                client.held[-1].send(chance.randbytes(chance.randrange(1, 3000)))
                told.ask("echo" if what == "echo" else "nothing")
        taking.micro._refusals = 0
        mine, is_on_top = images_of(taking, told.pid)
        if is_on_top:
            check_goes_on(mine, by_criu(taking, told))
            compared += 1
    assert compared > 5


def test_a_connection_works_on_after_many_commits(told: Told, taking: Taking, client: Client) -> None:
    """Neither is its option for sharing an address lost, which repair mode takes away."""
    made = client.connect()
    taking.base(told.pid)
    for _ in range(3):
        told.ask("answer")
        on_top(taking, told)
        assert made.recv(100) == b"answer"
    reuse = {isk.opts.reuseaddr for isk, stream in by_criu(taking, told)["sockets"].values() if stream}
    assert reuse == {True}


SETSOCKOPT, RECVFROM = 54, "45 "
IN_REPAIR = [
    2,
    5,
    8,
]  # of the nine with which one connection is looked into; from the first to the eighth it is in repair mode


@pytest.mark.parametrize("moment", IN_REPAIR)
def test_a_tracker_that_dies_harms_no_connection(
    told: Told, taking: Taking, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: int
) -> None:
    """The process, which waits for bytes, does not ask again before the watchdog has taken the connection out of repair mode."""
    made, program = client.connect(), tmp_path / "dies_at_call"
    told.ask("wait for it")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", program, PROGRAMS / "dies_at_call.c"], check=True)
    micro = CriuTools(taking.settings.tools_path).micro
    dies = tmp_path / "relive-micro"
    dies.write_text(f'#!/bin/sh\nexec "{program}" {SETSOCKOPT} {moment} "{micro}" "$@"\n')
    dies.chmod(0o755)
    healed: list[int | str] = []
    mend, open_gate = WatchdogPeriod.mend, NoRequestGate.open

    def note(watch: WatchdogPeriod) -> int:
        count = mend(watch)
        healed.append(count)
        return count

    def note_open(gate: NoRequestGate, *given: Any) -> Any:
        healed.append("opened")
        return open_gate(gate, *given)

    monkeypatch.setattr(WatchdogPeriod, "mend", note)
    monkeypatch.setattr(NoRequestGate, "open", note_open)
    with monkeypatch.context() as patch:
        patch.setattr(CriuTools, "micro", dies)
        taking.base(told.pid)
    healed.clear()
    told.begin("echo")
    eventually(lambda: Path(f"/proc/{told.pid}/syscall").read_text().startswith(RECVFROM), "that it waits")
    assert not taking.commit(told.pid)
    assert healed == [1, "opened", "opened"]  # a gate may take longer than the process sleeps
    made.send(b"asked")
    assert told.hear() == "done"
    assert made.recv(100) == b"asked"
    assert told.ask("count") == "1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda told, _: told.ask("no delay"), "options"),
        (lambda _, client: client.held[-1].shutdown(socket.SHUT_WR), "that ends"),
        (lambda _, client: client.held.append(socket.create_connection(client._address)), "has changed"),
    ],
    ids=["another option", "half closed", "not accepted"],
)
def test_what_of_connections_is_not_followed_leads_to_a_full_commit(
    told: Told, taking: Taking, client: Client, change: Callable[[Told, Client], object], reason: str
) -> None:
    client.connect()
    taking.base(told.pid)
    change(told, client)
    taking.reasons.clear()
    assert not taking.commit(told.pid)
    assert any(reason in said for said in taking.reasons)


def test_an_offset_for_peeking_is_not_moved(told: Told, taking: Taking, client: Client) -> None:
    client.connect()
    taking.base(told.pid)
    client.connect().send(b"asked")
    told.ask("peek from")
    taking.reasons.clear()
    assert not taking.micro.stop(process_target(told.pid))
    assert "an offset for peeking" in taking.reasons[0]
    assert told.ask("peek") == "asked"


def test_a_connection_that_ends_with_its_answer_is_waited_for(
    told: Told, taking: Taking, client: Client
) -> None:
    """The base has none like it, so a full commit would be needed, which would have none either: and so each time."""
    told.ask("watch for clients")
    told.ask("hang up when stopped")

    def is_on_top() -> bool:
        taking.micro.forget("a full commit is wanted")
        taking.base(told.pid)
        eventually(lambda: waits_for_events(told), "it waits")
        client.connect()
        return taking.commit(told.pid)

    assert any(is_on_top() for _ in range(TRIES)), taking.reasons


def waits_for_events(told: Told) -> bool:
    """One of its threads is in epoll_wait or epoll_pwait."""
    calls = [path.read_text().split()[0] for path in Path(f"/proc/{told.pid}/task").glob("*/syscall")]
    return bool({"232", "281"} & {*calls})


def test_many_connections_are_not_looked_at_again_and_again_in_vain(
    told: Told, taking: Taking, client: Client
) -> None:
    """What is not as in the base may be so for a moment; but a look stops the process for as long as there are connections."""
    for _ in range(400):
        client.connect()
    taking.base(told.pid)
    told.ask("descriptor")
    target, before = process_target(told.pid), switches(told)
    if taking.micro.stop(target):
        assert taking.micro.go(target) is None
    assert "something has changed" in str(taking.micro.reason)
    assert switches(told) - before < 8  # 3 where it is looked at once, 11 for five times


def switches(told: Told) -> int:
    """How often it has stopped or begun to wait."""
    status = Path(f"/proc/{told.pid}/status").read_text()
    [count] = [line.split()[1] for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")]
    return int(count)
