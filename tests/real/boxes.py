"""Real containers of podman for branches of their commits: one storage and one image for many tests."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from .harness import SERVICES, Relive
from .podman import Podman

IMAGE = "relive-box:1"
_DIRECTORIES = ("proc", "sys", "dev", "run", "etc", "var/lib/kept", "scratch")
_OPEN = ("tmp", "data")  # where any user may write
# What `boxed.py` and `escape` need of the standard library, with what these need.
_MODULES = (
    "__future__, ctypes, http.server, importlib, json, mmap, pathlib, resource, runpy, socket, threading, "
    "encodings.idna, encodings.latin_1"
)


class Boxes(Podman):
    """A storage with one image."""

    def __init__(self, driver: str = "vfs") -> None:
        super().__init__(driver)
        self._networks: list[str] = []

    def make_image(self, *programs: str | Path) -> None:
        """An image with Python, the services and these programs, and all the libraries they need."""
        with self.new_image(IMAGE) as rootfs:
            rootfs.directories(*_DIRECTORIES)
            rootfs.directories(*_OPEN, mode=0o1777)
            rootfs.programs(*_python_files(), *map(Path, programs))
            for name in ("boxed.py", "escape"):
                rootfs.file(SERVICES / name, name)

    def network(self) -> str:
        """A network namespace with an address of its own, and a device to it on the host; its path is for ``--network=ns:``.

        The container's address is 10.213.N.2, the host's 10.213.N.1 (see ``address``).
        """
        name = self.directory.name
        ip = "ip"
        for words in (
            [ip, "netns", "add", name],
            [ip, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name],
            [ip, "address", "add", f"{self.address(host=True)}/30", "dev", name],
            [ip, "link", "set", name, "up"],
            [ip, "-n", name, "address", "add", f"{self.address()}/30", "dev", "eth0"],
            [ip, "-n", name, "link", "set", "eth0", "up"],
            [ip, "-n", name, "link", "set", "lo", "up"],
        ):
            subprocess.run(words, check=True, capture_output=True)
            if name not in self._networks:
                self._networks.append(name)
        return f"/run/netns/{name}"

    def address(self, *, host: bool = False) -> str:
        """In the network of this storage."""
        return f"10.213.{os.getpid() % 250 + 1}.{1 if host else 2}"

    def start(self, name: str, *words: str | Path) -> int:
        """Start a container in the background: options, the image, its command. Its process's pid on the host."""
        self.run("run", "--detach", f"--name={name}", *words)
        return int(self.state(name)["Pid"])

    def boxed(
        self, name: str, *options: str, port: int = 8000, directories: tuple[str, ...] = ("/tmp",)
    ) -> int:
        """Start ``boxed.py``, with Python's own path to it."""
        return self.start(name, *options, IMAGE, python(), "-B", "/boxed.py", str(port), *directories)

    def commit(self, relive: Relive, name: str) -> str:
        """A commit of a container, which runs on; its id."""
        archive = self.directory / f"{name}.tar"
        self.run(
            "container",
            "checkpoint",
            name,
            f"--export={archive}",
            "--compress=none",
            "--leave-running",
            "--tcp-established",
            "--file-locks",
        )
        try:
            return str(relive("import", str(archive))["id"])
        finally:
            archive.unlink()

    def close(self) -> None:
        """End all of it, the network after what runs in it."""
        super().close()
        for name in self._networks:
            subprocess.run(["ip", "netns", "delete", name], check=True)


def python() -> str:
    """The interpreter in the image: the one below the virtual environment of the tests."""
    return os.path.realpath(sys.executable)


def _python_files() -> set[Path]:
    ask = f"""
import sys, {_MODULES}
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""
    said = subprocess.run(
        [python(), "-I", "-S", "-c", ask], capture_output=True, text=True, check=True
    ).stdout
    # By this one it finds its library.
    landmark = Path(sysconfig.get_path("stdlib")) / "os.py"
    return {Path(python()), landmark} | {Path(line) for line in said.split("\n") if line}
