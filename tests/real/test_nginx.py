"""nginx in a container: its master, its workers as another user, and what they share."""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ports import free_port
from support.waiting import LIMIT, eventually

from .containers import Pods, relive
from .harness import Load, Relive

__all__ = ["relive"]

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")

_PAGE = random.Random(5).randbytes(600_000)  # more than a socket takes at once
_CONFIGURATION = """
daemon off;
user app;
worker_processes 2;
pid /run/nginx.pid;
error_log stderr;
events {{ }}
http {{
    sendfile on;
    open_file_cache max=10;
    keepalive_requests 1000000;
    keepalive_timeout 10m;
    access_log /var/log/nginx/access.log;
    limit_req_zone $uri zone=all:1m rate=1000000r/m;
    server {{
        listen {0};
        location / {{ root /srv; limit_req zone=all burst=1000; }}
        location = /status {{ stub_status; }}
    }}
}}
"""


class Client:
    """A keep-alive connection, which must not be opened again."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        self._line.connect()
        self._line.auto_open = 0

    def __call__(self, path: str) -> bytes:
        self._line.request("GET", path)
        answer = self._line.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body)
        return body

    def close(self) -> None:
        self._line.close()


def has_the_page(client: Client) -> bool:
    assert client("/page") == _PAGE
    return True


def served(client: Client) -> int:
    """How many requests it has had in all, which the workers count in memory that they share."""
    found = re.search(rb"requests\n +\d+ +\d+ +(\d+)", client("/status"))
    assert found is not None
    return int(found[1])


@pytest.fixture
def port(pods: Pods, tmp_path: Path) -> int:
    """Of the container ``web``, in which nginx serves ``/page`` from a file that it has made."""
    made = free_port()
    (tmp_path / "nginx.conf").write_text(_CONFIGURATION.format(made))
    (tmp_path / "page").write_bytes(_PAGE)
    prepare = "mkdir -p /srv /var/log/nginx /var/lib/nginx && cp /etc/nginx/page /srv"
    command = ("/bin/sh", "-c", f"{prepare} && exec nginx -c /etc/nginx/nginx.conf")
    pods.start("web", *command, options=("--network=host", f"--volume={tmp_path}:/etc/nginx:ro"))
    eventually(lambda: Client(made), "nginx listens").close()
    return made


def workers(inside: Callable[..., str]) -> set[int]:
    """Numbers of the workers that take connections; a master that is not alone with them, or another user, is an error.

    A child that was forked just now has the master's title and user until it has begun: it is no worker yet.
    """
    listed = [
        line.split(maxsplit=3)
        for line in inside("/bin/ps", "-C", "nginx", "-o", "user=,pid=,ppid=,args=").splitlines()
    ]
    masters = [(user, pid) for user, pid, _, what in listed if "master process" in what]
    children = {pid for _, pid, parent, _ in listed if parent in {pid for _, pid in masters}}
    assert [user for user, pid in masters if pid not in children] == ["root"]
    found = [(user, int(pid)) for user, pid, _, what in listed if what.endswith("worker process")]
    assert {user for user, _ in found} == {"app"}
    return {pid for _, pid in found}


def lives_on(port: int, inside: Callable[..., str], least: int, most: int) -> None:
    """A copy has the file, has counted what was before the commit and counts on; and its master replaces its workers."""
    with contextlib.closing(eventually(lambda: Client(port), f"nginx at {port}")) as client:
        count = served(client)
        assert least < count <= most
        assert has_the_page(client)
        assert served(client) == count + 2
    before = workers(inside)
    inside("/usr/sbin/nginx", "-c", "/etc/nginx/nginx.conf", "-s", "reload")
    eventually(lambda: len(workers(inside)) == 2 and not workers(inside) & before, "its workers are replaced")
    with contextlib.closing(Client(port)) as client:
        assert has_the_page(client)
        assert served(client) == count + 4


def test_it_serves_on_beside_the_original(relive: Relive, pods: Pods, port: int) -> None:
    """GIVEN clients that ask on connections which they keep, WHEN nginx is committed, THEN none of them notices; with podman and
    without it, the commit serves the same file from where it was, under its workers' user, and the original goes on.
    """

    def inside(name: str) -> Callable[..., str]:
        return lambda *command: pods.run("exec", name, *command)

    with contextlib.ExitStack() as kept:
        clients = [kept.enter_context(contextlib.closing(Client(port))) for _ in range(3)]
        before, own = served(clients[0]), workers(inside("web"))
        with Load(lambda: all(map(has_the_page, clients))) as load:
            commit = relive.commit("podman:web")
            load.more()
        after = served(clients[0])
        back = pods.restore(relive, commit.id, "back", port)
        lives_on(back, inside("back"), before, after)
        branch = relive.restore(commit, port)
        lives_on(branch.ports[port], branch.exec, before, after)
        assert not pods.reaches_out("back") and branch.seal().is_intact
        assert all(map(has_the_page, clients))
        assert served(clients[0]) == after + len(clients) + 1
        assert workers(inside("web")) == own
