"""Containers for tests: an image of a few links, into which this machine's programs are bound, so that it is made in no time."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

from ports import free_port

from .harness import PYTHON, SERVICES, Relive, ask
from .podman import Podman

__all__ = ["IMAGE", "Pods", "consistent"]

IMAGE = "localhost/relive-host:latest"
_EMPTY = ("proc", "sys", "dev", "tmp", "run", "etc", "usr", "data", "var", "root", "home")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"


class Pods(Podman):
    """A podman whose containers have this machine's programs."""

    def __init__(self) -> None:
        super().__init__("overlay")
        # What the tests' Python is made of: its own directory, and where its environment and Relive's sources lie.
        self.places = sorted({"/usr", sys.prefix, str(SERVICES)})
        self.make_image(IMAGE)

    def make_image(self, name: str, **files: str) -> None:
        """An image; ``files`` are further ones in its ``/etc``."""
        tree = self.directory / "host-tree"
        tree.mkdir(exist_ok=True)
        for one in _EMPTY:
            (tree / one).mkdir(exist_ok=True)
        (tree / "tmp").chmod(0o1777)
        (tree / "data").chmod(0o777)
        for one in ("bin", "sbin", "lib", "lib64"):
            link = Path("/", one)
            if link.is_symlink() and not (tree / one).is_symlink():
                (tree / one).symlink_to(os.readlink(link))
        for one, text in {"passwd": _PASSWD, "group": "root:x:0:\napp:x:1000:\n", **files}.items():
            (tree / "etc" / one).write_text(text)
        with tarfile.open(self.directory / "host-tree.tar", "w") as file:
            file.add(tree, ".")
        self.run("import", self.directory / "host-tree.tar", name)

    def start(
        self, name: str, *command: str | Path, options: tuple[str, ...] = (), image: str = IMAGE
    ) -> None:
        """Run a command in the background."""
        bound = [f"--volume={one}:{one}:ro" for one in self.places]
        network = () if any(one.startswith("--network") for one in options) else ("--network=none",)
        self.run("run", "--detach", f"--name={name}", *network, *bound, *options, image, *command)

    def serve(self, name: str, *options: str, image: str = IMAGE) -> int:
        """The counting service in this host's network; returns its port, where it answers."""
        port = free_port()
        command = [PYTHON, "-m", "uvicorn", "--app-dir", SERVICES, "counter_app:app", "--port", str(port)]
        keep = ["--timeout-keep-alive", "60"]
        own = ("--network=host", "--env=COUNTER_DB=/data/hits.db", *options)
        self.start(name, *command, *keep, options=own, image=image)
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
