"""A service in a branch, running as root, that tries every way out it knows (``services/escape``)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Branch, Relive

# The ten ways that were asked for by name, and what must become of each; the others only must not succeed.
TEN = {
    "name_service": "gaierror",
    "tcp6_to_the_world": r"OSError: \[Errno 101\]",
    "udp_to_the_world": r"OSError: \[Errno 101\]",
    "raw_packets": r"OSError: \[Errno 101\]",
    "unix_socket_in_tmp": "ConnectionRefusedError",
    "abstract_unix_socket_of_the_host": "ConnectionRefusedError",
    "kernel_switch": r"OSError: \[Errno 30\]|FileNotFoundError",
    "vsock_to_the_hypervisor": r"OSError: \[Errno 97\]",
    "connection_opened_before_the_commit": "OSError: it has ended|ConnectionResetError",
    "tcp_to_the_world": r"OSError: \[Errno 101\]",
}
BROKEN = ("KeyError", "AttributeError", "TypeError", "NameError")  # the attempt, not the way
WAYS = [
    name
    for path in sorted((SERVICES / "escape").glob("*.py"))
    for name in re.findall(r"^@way\ndef (\w+)\(", path.read_text(), re.MULTILINE)
]


@dataclass
class Host:
    """What is to be reached on the host; each of its sockets notes who came."""

    directory: Path
    visitors: list[str] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def listen(self, family: int, address: object) -> socket.socket:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(address)
        listener.listen()
        self.sockets.append(listener)
        threading.Thread(target=self._serve, args=(listener, str(address)), daemon=True).start()
        return listener

    def _serve(self, listener: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while True:
                visitor = listener.accept()[0]
                self.visitors.append(name)
                visitor.send(b"secret")
                visitor.close()

    def hold(self) -> int:
        """Port of a listener that keeps who comes, and notes what is said then."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.sockets.append(listener)
        threading.Thread(target=self._keep, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def _keep(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            visitor = listener.accept()[0]
            self.sockets.append(visitor)
            while said := visitor.recv(99):
                self.visitors.append(f"said on the connection from before: {said!r}")
                visitor.sendall(said)

    def close(self) -> None:
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        shutil.rmtree(self.directory)


def addresses() -> list[str]:
    """IPv4 addresses of this machine beside loopback, and one that is nobody's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return [probe.getsockname()[0], "192.0.2.2"]
    return ["192.0.2.2"]


@dataclass
class Burglar:
    branch: Branch
    port: int
    host: Host
    udp: socket.socket
    facts: dict[str, object]

    def try_(self, way: str) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.branch.ports[self.port]}/{way}", timeout=30
        ) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def burglar() -> Iterator[Burglar]:
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "escape")
    host = Host(Path(tempfile.mkdtemp(prefix="relive-seal-")))
    name = host.directory.name
    run = Path("/run") / f"{name}.sock"
    tcp = host.listen(socket.AF_INET, ("0.0.0.0", 0)).getsockname()[1]
    host.listen(socket.AF_UNIX, f"\0{name}")
    host.listen(socket.AF_UNIX, str(host.directory / "socket"))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    disk = os.stat("/").st_dev
    os.mknod(host.directory / "node", stat.S_IFBLK | 0o600, disk)
    (host.directory / "file").write_text("the host's\n")
    facts: dict[str, object] = {
        "tcp": tcp,
        "udp": udp.getsockname()[1],
        "kept": host.hold(),
        "addresses": addresses(),
        "abstract": name,
        "disk": disk,
    }
    facts |= {"run": str(run), "tmp": str(host.directory / "socket"), "home": str(home), "pid": os.getpid()}
    facts |= {"node": str(host.directory / "node"), "file": str(host.directory / "file")}
    port = free_port()
    try:
        capsule = relive.run(PYTHON, SERVICES / "escape", str(port), json.dumps(facts))
        eventually(lambda: socket.create_connection(("127.0.0.1", port)).close() is None)
        branch = relive.restore(relive.commit(capsule), port)
        # After the commit: a capsule's commit holds the names of sockets in /run.
        host.listen(socket.AF_UNIX, str(run))
        yield Burglar(branch, port, host, udp, facts)
    finally:
        relive.close()
        udp.close()
        host.close()
        run.unlink(missing_ok=True)
        shutil.rmtree(home)


@pytest.mark.parametrize("way", WAYS)
def test_there_is_no_way_out(burglar: Burglar, way: str) -> None:
    answer = burglar.try_(way)
    assert not answer.startswith("out")
    assert not answer.startswith(BROKEN)
    assert re.match(TEN.get(way, ""), answer)


# What they try has to be open before the commit.
OF_BEFORE = {name for name in WAYS if name.endswith("_before_the_commit")}


def test_there_is_no_way_out_for_a_command(burglar: Burglar) -> None:
    """The same ways, by `relive exec`: what runs beside the service has no more rights than it."""
    table = burglar.branch.exec(str(PYTHON), str(SERVICES / "escape"), "--table", json.dumps(burglar.facts))
    answers = dict(line.split("\t", 1) for line in table.splitlines() if "\t" in line)
    assert answers.keys() == set(WAYS)
    assert [f"{name}: {said}" for name, said in answers.items() if said.startswith("out")] == []
    for name in WAYS:
        if name not in OF_BEFORE:
            assert not answers[name].startswith(BROKEN), answers[name]


def test_nothing_arrived_and_nothing_left(burglar: Burglar) -> None:
    """Last: the proof, after all attempts."""
    assert burglar.host.visitors == []
    burglar.udp.setblocking(False)
    with pytest.raises(BlockingIOError):
        burglar.udp.recv(9)
    seal = burglar.branch.seal()
    assert seal.is_intact and seal.packets_left == 0 and seal.devices == []
    assert seal.refused >= 4  # the attempts on the network were seen
    assert (burglar.host.directory / "file").read_text() == "the host's\n"


def test_commands_run_inside_have_no_more_rights_than_the_service(burglar: Burglar) -> None:
    refused = burglar.branch.exec("mount", "-t", "tmpfs", "none", "/mnt", check=False)
    assert "permission denied" in refused or "must be superuser" in refused
    own = re.search(r"CapEff:\s+(\w+)", burglar.branch.exec("cat", "/proc/self/status"))
    root = burglar.branch.exec("cat", f"/proc/{_root_inside(burglar.branch)}/status")
    its = re.search(r"CapEff:\s+(\w+)", root)
    assert own and its and int(own[1], 16) & ~int(its[1], 16) == 0


def _root_inside(branch: Branch) -> int:
    return int(
        Path(f"/proc/{branch.root}/status").read_text().partition("NSpid:")[2].splitlines()[0].split()[-1]
    )


def test_commands_run_inside_begin_at_the_branch_s_own_root(burglar: Burglar) -> None:
    """A working directory of the host would be a way around all mounts, for every relative path."""
    assert burglar.branch.exec("readlink", "/proc/self/cwd").strip() == "/"
    here = burglar.branch.exec("stat", "-c", "%d:%i", ".", "/").split()
    assert here[0] == here[1]


def test_process_1_holds_nothing_of_the_host(burglar: Burglar) -> None:
    """It was started outside of the branch's files: no directory, descriptor or program of it may still lie there."""
    init = Path(f"/proc/{burglar.branch.inner.facts.init}")
    own = {line.split()[0] for line in (init / "mountinfo").read_text().splitlines()}
    doors = [init / "cwd", init / "root", init / "exe"]
    assert {str(door): _mount_of(door) for door in doors if _mount_of(door) not in own} == {}
    for door in (init / "fd").iterdir():
        target = os.readlink(door)
        if target.startswith("/") and not target.endswith("/status"):  # where it notes how the root ends
            assert _mount_of(door) in own, f"{door.name}: {target}"
    assert re.search(r"CapEff:\s+0+\n", (init / "status").read_text())


def _mount_of(path: Path) -> str:
    """The number of the mount (proc_pid_mountinfo(5)) on which a file was opened."""
    descriptor = os.open(path, os.O_PATH)
    try:
        facts = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)
    return facts.partition("mnt_id:")[2].split()[0]
