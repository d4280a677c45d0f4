"""Containers for tests: an image of a few links, into which this machine's programs are bound, so that it is made in no time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.containers.podman.restore.network import remove_network
from support.ports import free_port

from .harness import PYTHON, SERVICES, Relive, ask
from .podman import Podman

__all__ = ["IMAGE", "Pods", "consistent", "relive"]

IMAGE = "localhost/relive-host:latest"


class Pods(Podman):
    """A podman whose containers have this machine's programs."""

    def __init__(self) -> None:
        super().__init__("overlay")
        # What the tests' Python is made of: its own directory, and where its environment and Relive's sources lie.
        self.places = sorted({"/usr", sys.prefix, str(SERVICES)})
        self.make_image(IMAGE)

    def make_image(self, name: str, **files: str) -> None:
        """An image; ``files`` are further ones in its ``/etc``."""
        with self.new_image(name) as rootfs:
            rootfs.host()
            for one, text in files.items():
                rootfs.text(f"etc/{one}", text)

    def start(
        self,
        name: str,
        *command: str | Path,
        options: tuple[str, ...] = (),
        image: str = IMAGE,
        runtime: str | Path = "runc",
    ) -> None:
        """Run a command in the background."""
        bound = [f"--volume={one}:{one}:ro" for one in self.places]
        network = () if any(one.startswith("--network") for one in options) else ("--network=none",)
        run = (f"--runtime={runtime}", "run", "--detach", f"--name={name}")
        self.run(*run, *network, *bound, *options, image, *command)

    def serve(self, name: str, *options: str, image: str = IMAGE, runtime: str | Path = "runc") -> int:
        """The counting service in this host's network; returns its port, where it answers."""
        port = free_port()
        command = [PYTHON, "-m", "uvicorn", "--app-dir", SERVICES, "counter_app:app", "--port", str(port)]
        keep = ["--timeout-keep-alive", "60"]
        own = ("--network=host", "--env=COUNTER_DB=/data/hits.db", *options)
        self.start(name, *command, *keep, options=own, image=image, runtime=runtime)
        ask(port, "/state")
        return port

    def reaches_out(self, name: str) -> bool:
        """A process that joins the container can send somewhere."""
        connect = "import socket; s = socket.socket(2, 2); s.connect(('192.0.2.1', 9))"
        return self.ask("exec", name, PYTHON, "-c", connect).returncode == 0

    def restore(self, relive: Relive, ref: str, name: str, inner: int, *options: str) -> int:
        """Restore a commit as a container, one port published; returns the port of this host."""
        port = free_port()
        publish = f"--publish=127.0.0.1:{port}:{inner}"
        relive("restore", ref, "--as=podman", f"--name={name}", publish, *options)
        return port


def consistent(told: dict[str, int]) -> int:
    """What the counting service has counted: in memory, in its database and in its log alike."""
    assert told["count"] == told["rows"] == told["lines"], told
    return told["count"]


@pytest.fixture
def relive(relive: Relive, pods: Pods) -> Iterator[Relive]:
    """Its commands find this podman; afterwards there is no container."""
    relive.environment |= pods.found_by
    yield relive
    pods.ask("rm", "--all", "--force", "--time=0")
    for point in relive.home.glob("containers/*/network"):
        remove_network(point)
