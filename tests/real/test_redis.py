"""Redis with data, an append-only file, under writes; and a service with a pool of connections to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import redis

from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Branch, Capsule, Load, Relive, ask

server = shutil.which("redis-server")
pytestmark = pytest.mark.skipif(server is None, reason="needs redis-server")


def command_of(port: int, directory: Path) -> list[str]:
    options = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": directory,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "enable-debug-command": "yes",
        "crash-memcheck-enabled": "no",  # which writes over all its memory when it dies
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [str(server), *words, "--save", ""]


def start_redis(relive: Relive, directory: Path) -> tuple[Capsule, int]:
    port = free_port()
    capsule = relive.run(*command_of(port, directory), name="redis")
    with client_of(port) as client:
        eventually(lambda: _answers(client), "redis answers")
    return capsule, port


def client_of(port: int) -> redis.Redis:
    return redis.Redis(port=port, socket_timeout=30, single_connection_client=True)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def appended(branch: Branch, directory: Path) -> int:
    """How many increments stand in the branch's append-only file."""
    text = branch.exec("sh", "-c", f"cat {directory}/appendonlydir/*.incr.aof")
    return text.count("incr") + text.count("INCR")


def test_redis_under_writes(relive: Relive, tmp_path: Path) -> None:
    capsule, port = start_redis(relive, tmp_path)
    with client_of(port) as client:
        client.mset({f"key:{number}": "x" * 1000 for number in range(3000)})
        with Load(lambda: client.incr("count")) as load:
            first = load.last
            commit = relive.commit(capsule)
            last = load.last + 1
            load.more()
            branches = [relive.restore(commit, port), relive.restore(commit, port)]
            load.more()
        for steps, branch in enumerate(branches, start=1):
            with client_of(branch.ports[port]) as inside:
                count = int(inside.get("count"))
                assert first <= count <= last
                assert inside.dbsize() == 3001
                for _ in range(steps):
                    inside.incr("count")
                # What is written to disk is that of the commit and of the branch, not of the original.
                eventually(
                    lambda b=branch, n=count + steps: appended(b, tmp_path) == n, "the append-only file"
                )
                assert int(inside.get("count")) == count + steps
                assert inside.info("server")["process_id"] == commit.manifest.target.root
            assert branch.seal().is_intact
        assert int(client.get("count")) == load.last


def test_a_crash_comes_back_with_all_that_clients_had_said(relive: Relive, tmp_path: Path) -> None:
    """GIVEN a protocol of which nothing is known, a client that the commit holds and one that comes later
    WHEN the service dies of what one of them says
    THEN both are heard again in their order, each answer is the recorded one, and it dies of the same.
    """
    port = free_port()
    listen = ("--listen", f"127.0.0.1:{port}", "--every", "never", "--name", "redis")
    relive("run", "--detach", *listen, "--", *command_of(port, tmp_path))  # until its packets are recorded
    with client_of(port) as early, client_of(port) as late:
        early.incr("count", 41)
        relive.commit("redis")
        assert [early.incr("count"), late.incr("count"), early.incr("count")] == [42, 43, 44]
        with pytest.raises(redis.ConnectionError):
            late.execute_command("DEBUG", "SEGFAULT")
    (incident,) = eventually(lambda: relive.incidents("redis"), "its incident")
    (run,) = relive("replay", str(incident["number"]))["runs"]
    assert run["verdict"]["kind"] == "reproduced"
    (words,) = [one for one in run["verdict"]["inside"] if "connections of clients" in one]
    assert words.endswith("messages that are not HTTP/1 were sent again on 2 connections of clients")
    assert not [one for one in run["verdict"]["inside"] if "otherwise" in one]


def test_a_pool_of_connections_to_a_database(relive: Relive, tmp_path: Path) -> None:
    """The original keeps talking to its Redis; in the branch those connections are closed, since nobody recorded them."""
    _, database = start_redis(relive, tmp_path)
    port = free_port()
    service = relive.run(
        PYTHON,
        SERVICES / "pooled.py",
        str(port),
        str(database),
        name="pooled",
        options=("--no-record-egress",),
    )
    assert ask(port, "/")["count"] == 1
    with client_of(database) as client, Load(lambda: ask(port, "/")["count"]) as load:
        connected = len(client.client_list())
        commit = relive.commit(service)
        load.more()
        branch = relive.restore(commit, port)
        load.more()
        assert len(client.client_list()) == connected
    assert load.last == load.done + 1  # the answers went on by one, and the branch added nothing
    outward = [one for one in commit.manifest.connections if not one.inward]
    assert outward and all(one.peer[1] == database for one in outward)
    said = ask(branch.ports[port], "/")
    assert "ConnectionError" in said["error"] or "Connection closed" in said["error"]
    assert branch.seal().is_intact
