"""Containers to be watched: podman with a storage of its own that the environment names, or the Docker that is there.

Their image has nothing in it: the host's ``/usr`` is mounted into each container, and its network is the host's.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from relive.kernel.namespaces import in_network_of
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from support.ports import free_port
from support.waiting import eventually

from .harness import SERVICES, Relive
from .podman import Podman
from .rootfs import Rootfs

IMAGE = "relive-watched"
_LIMIT = 60.0  # [s]


class WatchedPodman(Podman):
    """podman, with the image."""

    name = "podman"
    options: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__("overlay")
        with self.new_image(f"{IMAGE}:latest") as rootfs:
            _fill(rootfs)


def _fill(rootfs: Rootfs) -> None:
    rootfs.host()
    rootfs.directories("service")


class WatchedDocker:
    """The Docker of this host, or that of DOCKER_HOST. ``close`` removes the image, and what was written beside."""

    name = "docker"
    # The default of old engines is newer than this kernel's answers: CRIU cannot dump a filter that it cannot read.
    options = ("--security-opt=seccomp=unconfined",)

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="wat-", dir="/tmp"))
        self.found_by: dict[str, str] = {}
        archive = self.directory / "image.tar"
        with Rootfs(archive) as rootfs:
            _fill(rootfs)
        self.run("import", archive, f"{IMAGE}:latest")

    def ask(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run docker, whatever comes of it."""
        return subprocess.run(
            ["docker", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )

    def run(self, *arguments: str | Path) -> str:
        """Run docker; what it wrote to stdout."""
        done = self.ask(*arguments)
        assert done.returncode == 0, f"docker {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout

    def state(self, name: str) -> dict[str, Any]:
        """What Docker tells of its state."""
        return dict(json.loads(self.run("inspect", name))[0]["State"])

    def close(self) -> None:
        """See the class."""
        self.ask("image", "rm", "--force", IMAGE)
        shutil.rmtree(self.directory)


class Service:
    """``watched.py`` in a container, with a recording proxy before it once it is watched."""

    def __init__(
        self, engine: WatchedPodman | WatchedDocker, relive: Relive, name: str, *, network: str = "host"
    ) -> None:
        self.engine, self.name = engine, name
        self.target = f"{engine.name}:{name}"
        self.relive, self.network = relive, network
        self.port, self.proxy = free_port(), free_port()
        self.trigger = engine.directory / f"{name}.d" / "trigger"
        self.trigger.parent.mkdir()

    def __call__(self, *words: str) -> Any:
        """A command of Relive, which finds this podman."""
        return self.relive(*words, environment=self.engine.found_by)

    def start(self, *options: str | Path, inside: bool = False) -> None:
        """Start it and wait until it listens."""
        if inside:
            options = (*options, *self("podman-args", "--engine", self.engine.name, IMAGE)["options"])
        mounts = ["/usr:/usr:ro", f"{SERVICES}:/service:ro", f"{self.trigger.parent}:/var:rw"]
        volumes = [word for mount in mounts for word in ("--volume", mount)]
        command = ["/usr/bin/python3", "-B", "/service/watched.py", str(self.port), "/var/trigger"]
        how = ["--detach", f"--name={self.name}", f"--network={self.network}", *self.engine.options]
        self.engine.run("run", *how, *volumes, *options, IMAGE, *command)
        eventually(lambda: self.ask("/say", port=self.port), f"{self.name} answers")

    def watch(self, *options: str, every: str = "never") -> dict[str, Any]:
        """Begin the watch, with a proxy where the host reaches its port, and wait until its requests are recorded."""
        if self.network != "host":
            begun = self("watch", self.target, "--every", every, "--record", str(self.port), *options)
            eventually(lambda: self.ask("/say") and self.recorded(), "requests are recorded")
            return dict(begun)
        upstream = ["--listen", f"127.0.0.1:{self.proxy}", "--upstream", f"127.0.0.1:{self.port}"]
        begun = self("watch", self.target, "--every", every, *upstream, *options)
        eventually(lambda: self.ask("/say"), "the proxy takes requests")
        return dict(begun)

    def ask(self, path: str, *, port: int | None = None) -> str:
        """What it answers; by way of the proxy unless a port is given. Raises OSError when it does not answer."""
        if self.network != "host":
            return self._ask_within(path)
        address = f"http://127.0.0.1:{port or self.proxy}{path}"
        try:
            with urllib.request.urlopen(address, timeout=_LIMIT) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return f"status {error.code}"

    def _ask_within(self, path: str) -> str:
        """In its own network, at its own port."""
        pid = int(self.engine.state(self.name)["Pid"])
        if not pid:
            raise ConnectionRefusedError
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_LIMIT)
        asking.sock = in_network_of(pid, lambda: socket.create_connection(("127.0.0.1", self.port), _LIMIT))
        with contextlib.closing(asking):
            asking.request("GET", path)
            answer = asking.getresponse()
            body = answer.read().decode()
        return body if answer.status == 200 else f"status {answer.status}"

    def recorded(self) -> Counter[str]:
        """How often each target of a request is in the recording."""
        life = next(self.relive.home.glob(f"capsules/{self.name}/*"))
        return Counter(one.target for one in Exchanges(Recording(life / "recording")).begun_in(0, 1 << 60))

    def incidents(self, kind: str) -> list[dict[str, Any]]:
        """Those of a kind, the oldest first."""
        found = self.relive.incidents(self.name)
        return [one for one in reversed(found) if one["sighting"]["kind"] == kind]

    def incident(self, kind: str) -> dict[str, Any]:
        """Wait for the first of a kind."""
        return eventually(lambda: self.incidents(kind), f"an incident: {kind}")[0]

    def agent(self) -> int:
        """Pid of the agent that watches it."""
        noted = next(self.relive.home.glob(f"capsules/{self.name}/*/agent.pid"))
        return int(noted.read_text().split()[0])
