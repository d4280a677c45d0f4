"""Many kinds of containers, each committed and restored beside the original: services with data, and options that CRIU may
stumble over. Takes minutes: ``make test ARGS="-m soak tests/real/test_container_kinds.py"``.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.ports import free_port
from support.waiting import eventually

from .containers import Pods, consistent, relive
from .harness import PYTHON, Load, Refused, Relive, ask, counting

__all__ = ["relive"]

pytestmark = pytest.mark.soak


def answers(port: int, say: bytes, want: bytes) -> bytes:
    """What a service says to some bytes, as soon as ``want`` is in it."""

    def attempt() -> bytes | None:
        with socket.create_connection(("127.0.0.1", port), 5) as line:
            line.sendall(say)
            line.settimeout(5)
            data = line.recv(65536)
            return data if want in data else None

    return eventually(attempt, f"{want!r} from {port}")


OPTIONS = {
    "bare": ("--network=none",),
    "read-only": ("--network=none", "--read-only", "--tmpfs=/data"),
    "tmpfs": ("--network=none", "--tmpfs=/data:rw,size=8m"),
    "volume": ("--network=none", "--volume=ticks:/data"),
    "user": ("--network=none", "--user=app"),
    "few-capabilities": ("--network=none", "--cap-drop=ALL"),
    "no-seccomp": ("--network=none", "--security-opt=seccomp=unconfined"),
    "privileged": ("--network=none", "--privileged"),
    "terminal": ("--network=none", "--tty"),
    "limits": ("--network=none", "--memory=256m", "--pids-limit=64"),
    "host-network": ("--network=host",),
    "bridge": ("--network=bridge",),
    "work-directory": ("--network=none", "--workdir=/data"),
}
TICKING = (
    "import time, sys\nn = 0\nwhile True:\n n += 1\n open('/data/n', 'w').write(str(n)); time.sleep(0.05)"
)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_counter_goes_on_whatever_its_options(relive: Relive, pods: Pods, kind: str) -> None:
    """It counts into a file; restored, it goes on from the commit, and both go on."""
    pods.start("web", PYTHON, "-c", TICKING, options=OPTIONS[kind])

    def count(name: str) -> int:
        return int(pods.ask("exec", name, "/bin/cat", "/data/n").stdout or 0)

    eventually(lambda: count("web") > 3, "it counts")
    commit = relive.commit("podman:web", "--with-volumes")
    later = count("web")
    eventually(lambda: count("web") > later + 20, "the original goes on")
    relive("restore", commit.id, "--as=podman", "--name=back")
    begin = eventually(lambda: count("back"), "it is back")
    assert begin <= later + 20 < count("web")  # by what the original did since, it is behind
    eventually(lambda: count("back") > begin + 3, "the restored one goes on")
    assert not pods.reaches_out("back")


@pytest.mark.parametrize("option", ["--ipc=host", "--pid=host"])
def test_what_shares_more_than_the_network_is_refused(relive: Relive, pods: Pods, option: str) -> None:
    """It would not be sealed; nothing of the host is committed with it either."""
    pods.start("web", PYTHON, "-c", TICKING, options=("--network=none", option))
    commit = relive.commit("podman:web")
    if option == "--ipc=host":
        assert "/dev/shm" not in [layer.point for layer in commit.manifest.layers]
    with pytest.raises(Refused, match="sealed") as refused:
        relive("restore", commit.id, "--as=podman", "--name=back")
    assert option in refused.value.remedy


def test_redis_keeps_its_data(relive: Relive, pods: Pods) -> None:
    port = free_port()
    pods.start(
        "web", "/usr/bin/redis-server", "--port", str(port), "--dir", "/data", options=("--network=host",)
    )
    answers(port, b"PING\r\n", b"PONG")
    numbers = iter(range(1, 1 << 30))

    def write() -> None:
        number = next(numbers)
        answers(port, b"SET n %d\r\n" % number, b"OK")

    with Load(write) as load:
        commit = relive.commit("podman:web")
        load.more()
    back = pods.restore(relive, commit.id, "back", port)
    found = int(answers(back, b"GET n\r\n", b"$").split()[1])
    assert 0 < found <= load.done + 1
    answers(back, b"SET n 0\r\n", b"OK")
    assert int(answers(port, b"GET n\r\n", b"$").split()[1]) >= found


def test_node_keeps_its_state(relive: Relive, pods: Pods) -> None:
    port = free_port()
    program = (
        "let n = 0; require('http').createServer((_, r) => r.end('count ' + ++n + ';')).listen("
        f"{port}, '127.0.0.1')"
    )
    node = shutil.which("node")
    assert node is not None
    places = () if node.startswith("/usr/bin") else (f"--volume={Path(node).parent}:{Path(node).parent}:ro",)
    pods.start("web", node, "-e", program, options=("--network=host", *places))
    ask_it = b"GET / HTTP/1.0\r\n\r\n"
    answers(port, ask_it, b"count 1;")
    commit = relive.commit("podman:web")
    answers(port, ask_it, b"count 2;")
    back = pods.restore(relive, commit.id, "back", port)
    answers(back, ask_it, b"count 2;")
    answers(port, ask_it, b"count 3;")


def test_postgresql_has_what_was_committed_and_nothing_half(relive: Relive, pods: Pods) -> None:
    """Several processes, shared memory, a volume: committed amid writes, the copy has every row up to one and is sound."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not binaries:
        pytest.skip("needs PostgreSQL")
    port, place = free_port(), binaries[-1]
    shell = (
        f"{place}/initdb -D /data/base -A trust -U app >/dev/null && exec {place}/postgres -D /data/base -p {port} "
        "-k /tmp -c huge_pages=off -c listen_addresses=127.0.0.1"
    )
    options = (
        "--network=host",
        "--user=app",
        "--volume=cluster:/data",
        "--env=LC_ALL=C",
        "--shm-size=128m",
    )
    pods.start("web", "/bin/sh", "-c", shell, options=options)

    def sql(at: int, text: str) -> str:
        command = [
            place / "psql",
            "-h",
            "127.0.0.1",
            "-p",
            str(at),
            "-U",
            "app",
            "-qAt",
            "-c",
            text,
            "postgres",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(done.stderr)
        return done.stdout.strip()

    eventually(lambda: sql(port, "create table rows (n serial primary key, t text)") == "", "it starts")
    with Load(
        lambda: sql(port, "insert into rows (t) select repeat('x', 1000) from generate_series(1, 10)")
    ) as load:
        load.more(5)
        commit = relive.commit("podman:web", "--with-volumes")
        load.more(5)
    back = pods.restore(relive, commit.id, "back", port)
    count, most = (int(one) for one in sql_when(back, sql, "select count(*), max(n) from rows").split("|"))
    assert count % 10 == 0 and 0 < count <= most
    sql(back, "insert into rows (t) values ('one more'); checkpoint")
    assert sql(back, "select count(*) from rows where t is null") == "0"
    assert int(sql(port, "select count(*) from rows")) >= count


def sql_when(port: int, sql: object, text: str) -> str:
    return str(eventually(lambda: sql(port, text), "the copy answers"))  # type: ignore[operator]


def test_ten_restores_at_once(relive: Relive, pods: Pods) -> None:
    port = pods.serve("web")
    with counting(port) as load:
        commit = relive.commit("podman:web")
        load.more(5)
    with ThreadPoolExecutor(10) as pool:
        ports = list(
            pool.map(lambda number: pods.restore(relive, commit.id, f"back-{number}", port), range(10))
        )
    counts = {consistent(ask(one, "/state")) for one in ports}
    assert len(counts) == 1
    assert consistent(ask(port, "/state")) >= counts.pop()


def test_a_container_that_is_removed_while_it_is_committed(relive: Relive, pods: Pods) -> None:
    """Whichever comes first, it is a whole commit or an error that says what happened; nothing is left in the store."""
    for round_ in range(4):
        name = f"web-{round_}"
        pods.start(
            name, PYTHON, "-c", f"x = bytearray(200 << 20); x[::4096] = b'x' * len(x[::4096])\n{TICKING}"
        )
        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(relive.say, "commit", f"podman:{name}")
            pods.ask("rm", "--force", "--time=0", name)
            done = committing.result()
        if done.returncode != 0:
            assert any(
                word in done.stdout for word in ("process-gone", "target-unknown", "target-undumpable")
            ), done.stdout
    relive("verify")


def test_podman_own_archive_comes_back_the_same_way(relive: Relive, pods: Pods, tmp_path: Path) -> None:
    """An archive that podman wrote, imported, is restored as podman too."""
    pods.start("web", PYTHON, "-c", TICKING)
    eventually(lambda: pods.ask("exec", "web", "/bin/cat", "/data/n").stdout > "3", "it counts")
    archive = tmp_path / "web.tar"
    pods.run("container", "checkpoint", "--leave-running", f"--export={archive}", "--compress=none", "web")
    commit = relive("import", str(archive))["id"]
    relive("restore", commit, "--as=podman", "--name=back")
    assert int(pods.run("exec", "back", "/bin/cat", "/data/n")) > 0
    assert not pods.reaches_out("back")
