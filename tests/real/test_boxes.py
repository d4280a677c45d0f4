"""Commits of real containers come back in Relive's own sandbox, without their engine."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.containers.restore.restoring import restore
from relive.kernel.capabilities import WITHHELD
from relive.kernel.namespaces import in_network_of
from relive.sandbox.branch import find_branch
from relive.store import Store
from support.forker import Forker
from support.ports import free_port
from support.waiting import eventually

from .boxes import IMAGE, Boxes, python
from .harness import Branch, Refused, Relive
from .test_seal import TEN, WAYS, Host, addresses

_redis = shutil.which("redis-server")
_PORT = 8000
_PLACES = ("/tmp", "/data", "/var/lib/kept", "/scratch", "/dev/shm")


@pytest.fixture(scope="module")
def volume() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="relive-volume-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def boxes(volume: Path, podman_works: None) -> Iterator[Boxes]:
    """A storage in which the container ``web`` runs."""
    with contextlib.closing(Boxes()) as made:
        made.make_image(*([_redis] if _redis else []))
        made.boxed(
            "web",
            f"--network=ns:{made.network()}",
            "--hostname=box",
            f"--volume={volume}:/data",
            "--volume=kept:/var/lib/kept",
            "--tmpfs=/scratch",
            directories=("/tmp", "/data", "/var/lib/kept", "/scratch", "/dev/shm"),
        )
        yield made


@pytest.fixture(scope="module")
def home(boxes: Boxes, forker: Forker) -> Iterator[Relive]:
    """A home for all tests here, with the environment by which podman is asked."""
    Relive.commands = forker
    made = Relive(Path(tempfile.mkdtemp(prefix="relive-")), "boxes")
    made.environment |= boxes.found_by
    yield made
    made.close()
    shutil.rmtree(made.home)


@pytest.fixture(scope="module")
def client(boxes: Boxes) -> Iterator[http.client.HTTPConnection]:
    """A connection over a network device to ``web``, which has answered three times on it."""
    made = http.client.HTTPConnection(boxes.address(), _PORT, timeout=30)
    with contextlib.closing(made):
        eventually(lambda: made.connect() is None, "the container listens")
        for _ in range(3):
            asked(made)
        yield made


@pytest.fixture(scope="module")
def web(boxes: Boxes, home: Relive, client: http.client.HTTPConnection) -> str:
    """Its commit; the container has gone on since then."""
    assert client.sock is not None
    commit = boxes.commit(home, "web")
    assert asked(client)["count"] == 4
    return commit


def asked(connection: http.client.HTTPConnection) -> dict[str, object]:
    connection.request("GET", "/")
    found: dict[str, object] = json.loads(connection.getresponse().read())
    return found


def published(branch: Branch) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{branch.ports[_PORT]}/", timeout=30) as answer:
        found: dict[str, object] = json.loads(answer.read())
        return found


def test_it_goes_on_with_its_memory_and_files_and_each_branch_by_itself(
    home: Relive, web: str, volume: Path, client: http.client.HTTPConnection
) -> None:
    branches = [home.restore(web, _PORT) for _ in range(2)]
    for branch in branches:
        first = published(branch)
        assert first["count"] == 4  # three before the commit
        assert first["files"] == dict.fromkeys(_PLACES, "4")
        assert first["pid"] == 1 and first["host"] == "box" and first["uid"] == 0
        later = published(branch)
        assert later["count"] == 5
        eventually(lambda branch=branch, first=first: all(_more(published(branch), first)))
    assert volume.joinpath("count").read_text() == "4"
    assert asked(client)["count"] == 5  # the original
    listed = {one["id"]: one for one in home("ps")}
    for branch in branches:
        assert listed[branch.id]["name"] == "web"
        assert "4\n5\n" in branch.output() == home("logs", branch.id)["stdout"]
        seal = branch.seal()
        assert seal.is_intact and seal.packets_left == 0
        directory = branch.inner.directory
        branch.stop()
        assert not directory.exists() and not Path(f"/proc/{branch.root}").exists()


def test_many_of_it_have_its_memory_and_its_files_in_memory(home: Relive, web: str) -> None:
    """CRIU starts a program for files in memory, also the CRIU that was forked from a template."""
    many = home("restore", "--count", "2", web)
    for one in many["branches"]:
        found = asked_inside(one["branch"]["root"], _PORT)
        assert found["count"] == 4 and found["files"] == dict.fromkeys(_PLACES, "4")
        find_branch(home.settings, one["branch"]["id"]).stop()


def _more(later: dict[str, object], first: dict[str, object]) -> list[bool]:
    pairs = zip(later["workers"], first["workers"], strict=True)  # type: ignore[call-overload]
    return [after > before for after, before in pairs]


def test_its_connections_go_on_and_it_has_the_rights_that_it_had(
    boxes: Boxes, home: Relive, web: str, client: http.client.HTTPConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in boxes.found_by.items():
        monkeypatch.setenv(name, value)
    now = asked(client)
    assert client.sock is not None
    port = client.sock.getsockname()[1]
    with contextlib.closing(Store(home.settings.store)) as store:
        branch = restore(home.settings, store, store.resolve(web))
    try:
        with socket.socket(fileno=os.dup(branch.peers[port])) as peer:
            assert peer.getpeername() == (boxes.address(), _PORT)
            peer.settimeout(30)
            peer.sendall(b"GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            found = json.loads(answer.read())
            answer.close()
        assert found["count"] == 4
        withheld = sum(1 << number for number in WITHHELD.values())
        assert found["capabilities"] == int(str(now["capabilities"])) & ~withheld
        assert found["filters"] == int(str(now["filters"])) + 1  # no sockets but those of a network
        inside = branch.command_inside(["python3", "-c", "print(1)"])
        # It is at another path.
        assert subprocess.run(inside, capture_output=True, check=False).returncode == 127
        ask = (
            "import os, pathlib; print(os.getpid() > 1, sorted(pathlib.Path('/etc').iterdir()), "
            "os.environ['HOSTNAME'], repr(open('/proc/keys').read()))"
        )
        said = subprocess.run(
            branch.command_inside([python(), "-c", ask]), capture_output=True, text=True, check=True
        )
        assert (
            said.stdout.startswith("True")
            and "/etc/hosts" in said.stdout
            and said.stdout.endswith("box ''\n")
        )
    finally:
        branch.stop()
    assert not branch.directory.exists()


@pytest.mark.skipif(_redis is None, reason="needs Redis")
def test_redis_as_nobody_with_a_read_only_root_has_its_data(boxes: Boxes, home: Relive) -> None:
    pid = boxes.start(
        "data",
        "--tty",
        "--network=none",
        "--read-only",
        "--user=1234:1234",
        "--cap-drop=all",
        "--tmpfs=/data",
        IMAGE,
        str(_redis),
        *("--port", "6379", "--dir", "/data", "--save", ""),
    )
    eventually(lambda: said_to_redis(pid, "PING") == "+PONG")
    assert said_to_redis(pid, "SET key before") == "+OK"
    assert said_to_redis(pid, "SAVE") == "+OK"
    commit = boxes.commit(home, "data")
    assert said_to_redis(pid, "SET key after") == "+OK"
    branch = home.restore(commit)
    assert said_to_redis(branch.root, "GET key") == "$6"
    assert said_to_redis(branch.root, "APPEND key -and-more") == ":15"
    assert said_to_redis(branch.root, "BGSAVE") == "+Background saving started"
    eventually(lambda: "Background saving terminated with success" in branch.output(), "its terminal is read")
    status = Path(f"/proc/{branch.root}/status").read_text()
    assert "\nUid:\t1234\t1234\t1234\t1234\n" in status and "\nCapBnd:\t0000000000000000\n" in status
    root = Path(f"/proc/{branch.root}/root")
    assert root.joinpath("data/dump.rdb").exists()
    with pytest.raises(OSError, match="Read-only"):
        root.joinpath("new").touch()
    assert said_to_redis(pid, "GET key") == "$5"


def said_to_redis(pid: int, words: str) -> str:
    """The first line of the answer, in the network of a process."""

    def ask() -> str:
        with socket.create_connection(("127.0.0.1", 6379), timeout=10) as connection:
            connection.sendall(f"{words}\r\n".encode())
            with connection.makefile("rb") as answer:
                return answer.readline().decode().strip()

    return in_network_of(pid, ask)


def test_a_privileged_container_with_the_hosts_processes_and_network_finds_no_way_out(
    boxes: Boxes, home: Relive
) -> None:
    """The worst there is: every way that ``escape`` knows, and a volume in which the host's own sockets and devices lie."""
    with contextlib.closing(Host(Path(tempfile.mkdtemp(prefix="relive-seal-")))) as host:
        name = host.directory.name
        tcp = host.listen(socket.AF_INET, ("0.0.0.0", 0)).getsockname()[1]
        host.listen(socket.AF_UNIX, f"\0{name}")
        host.listen(socket.AF_UNIX, str(host.directory / "socket"))
        disk = os.stat("/").st_dev
        os.mknod(host.directory / "node", 0o60600, disk)
        (host.directory / "file").write_text("the host's\n")
        inside = Path("/data")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            facts = {
                "tcp": tcp,
                "udp": udp.getsockname()[1],
                "kept": host.hold(),
                "addresses": addresses(),
                "abstract": name,
                "disk": disk,
                "run": "/data/socket",
                "tmp": "/data/socket",
                "home": str(home.home),
                "pid": os.getpid(),
                "node": str(inside / "node"),
                "file": str(inside / "file"),
            }
            port = free_port()
            options = ("--privileged", "--pid=host", "--network=host", f"--volume={host.directory}:/data")
            boxes.start("escape", *options, IMAGE, python(), "-B", "/escape", str(port), json.dumps(facts))
            eventually(lambda: socket.create_connection(("127.0.0.1", port)).close() is None)
            branch = home.restore(boxes.commit(home, "escape"), port)
            visitors = list(host.visitors)
            answers = {}
            for way in WAYS:
                place = f"http://127.0.0.1:{branch.ports[port]}/{way}"
                with urllib.request.urlopen(place, timeout=30) as answer:
                    answers[way] = answer.read().decode()
            bad = ("out", "KeyError", "AttributeError", "TypeError", "NameError")
            assert {way: said for way, said in answers.items() if said.startswith(bad)} == {}
            assert answers.keys() >= TEN.keys()
            assert host.visitors == visitors
            udp.setblocking(False)
            with pytest.raises(BlockingIOError):
                udp.recv(9)
        seal = branch.seal()
        assert seal.is_intact and seal.packets_left == 0 and seal.refused >= 4
        assert (host.directory / "file").read_text() == "the host's\n"


def test_without_its_image_or_with_another_one_of_its_name_it_is_refused(
    boxes: Boxes, home: Relive, web: str, tmp_path: Path
) -> None:
    other = boxes.found_by | {"CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf")}
    text = Path(boxes.found_by["CONTAINERS_STORAGE_CONF"]).read_text()
    short = Path(tempfile.mkdtemp(prefix="box-", dir="/tmp"))
    try:
        (tmp_path / "storage.conf").write_text(text.replace(str(boxes.directory), str(short)))
        with pytest.raises(Refused) as caught:
            home("restore", web, environment=other)
        assert caught.value.code == "image-unavailable"
        assert "podman does not have" in caught.value.cause and "podman pull" in caught.value.remedy
        subprocess.run(
            ["podman", "import", "-", IMAGE],
            input=bytes(10240),
            env=os.environ | other,
            check=True,
            capture_output=True,
        )
        with pytest.raises(Refused) as caught:
            home("restore", web, environment=other)
        assert caught.value.code == "image-unavailable"
        assert "another one has its name" in caught.value.message and IMAGE in caught.value.cause
        with pytest.raises(Refused) as caught:
            home("restore", web, environment={"PATH": str(tmp_path)})
        assert "no podman" in caught.value.cause
    finally:
        shutil.rmtree(short)


# -- the broad matrix ------------------------------------------------------------------------------------------------------

_KINDS = {
    "bridge": ["--publish=127.0.0.1:{0}:{0}"],
    "no network": ["--network=none"],
    "the host's network": ["--network=host"],
    "privileged": ["--network=none", "--privileged"],
    "the host's processes": ["--network=none", "--pid=host"],
    "the host's queues": ["--network=none", "--ipc=host"],
    "the host's name": ["--network=none", "--uts=host"],
    "a terminal": ["--network=none", "--tty"],
    "nobody": ["--network=none", "--user=1234", "--cap-drop=all", "--security-opt=no-new-privileges"],
    "read-only": ["--network=none", "--read-only", "--tmpfs=/tmp"],
    "read-only, and its own tmpfs": ["--network=none", "--read-only", "--read-only-tmpfs"],
    "no filter": ["--network=none", "--security-opt=seccomp=unconfined"],
    "limits": ["--network=none", "--pids-limit=50", "--ulimit=nofile=512:512", "--ulimit=nproc=512:512"],
    "a device": ["--network=none", "--device=/dev/fuse"],
    "capabilities": ["--network=none", "--cap-add=SYS_ADMIN,NET_ADMIN"],
}


def asked_inside(pid: int, port: int) -> dict[str, object]:
    """Ask in the network of a process."""

    def ask() -> dict[str, object]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            return asked(connection)

    return in_network_of(pid, ask)


@pytest.mark.soak
@pytest.mark.parametrize("kind", _KINDS)
def test_containers_of_every_kind(boxes: Boxes, home: Relive, kind: str) -> None:
    """GIVEN a container that has counted to 2, WHEN its commit is restored three times, THEN each counts on, and alike."""
    port, name = free_port(), kind.replace(" ", "-").replace(",", "").replace("'", "")
    pid = boxes.boxed(name, *(one.format(port) for one in _KINDS[kind]), port=port)
    eventually(lambda: asked_inside(pid, port)["count"] == 2)
    commit = boxes.commit(home, name)
    before = asked_inside(pid, port)
    branches = [home.restore(commit) for _ in range(3)]
    for branch in branches:
        found = [asked_inside(branch.root, port) for _ in range(2)]
        assert [one["count"] for one in found] == [3, 4]
        assert found[1]["files"] == {"/tmp": "4"}
        assert [found[0][key] for key in ("pid", "uid")] == [before[key] for key in ("pid", "uid")]
        assert branch.seal().is_intact
    for branch in branches:
        branch.stop()
    assert asked_inside(pid, port)["count"] == 4
    boxes.run("rm", "--force", "--time=0", name)


@pytest.mark.soak
def test_ten_at_once_and_after_the_container_is_gone(boxes: Boxes, home: Relive) -> None:
    pid = boxes.boxed(
        "many", "--network=none", "--user=77", "--volume=many:/data", directories=("/tmp", "/data")
    )
    eventually(lambda: asked_inside(pid, _PORT)["count"] == 1)
    commit = boxes.commit(home, "many")
    boxes.run("rm", "--force", "--time=0", "many")
    branches = [home.restore(commit) for _ in range(10)]
    for number, branch in enumerate(branches):
        for count in range(number + 1):
            assert asked_inside(branch.root, _PORT)["count"] == count + 2
    for branch in branches:
        branch.stop()


@pytest.mark.soak
def test_with_overlays_and_lazily(home: Relive, forker: Forker) -> None:
    """With podman's driver overlay, layers are read where they lie; and pages come in when they are touched."""
    with contextlib.closing(Boxes("overlay")) as boxes:
        boxes.make_image()
        pid = boxes.boxed("over", "--network=none")
        eventually(lambda: asked_inside(pid, _PORT)["count"] == 1)
        commit = boxes.commit(home, "over")
        for option in ("--no-stubs", "--lazy"):
            answer = home("restore", option, commit, environment=boxes.found_by)
            assert asked_inside(answer["root"], _PORT)["count"] == 2
            home("stop", answer["id"])


@pytest.mark.soak
def test_a_container_with_users_of_its_own_is_refused(boxes: Boxes, home: Relive) -> None:
    pid = boxes.boxed("users", "--network=none", "--uidmap=0:100000:5000", "--gidmap=0:100000:5000")
    eventually(lambda: asked_inside(pid, _PORT)["count"] == 1)
    commit = boxes.commit(home, "users")
    with pytest.raises(Refused) as caught:
        home.restore(commit)
    assert caught.value.code == "restore-unsupported" and "--format podman" in caught.value.remedy
