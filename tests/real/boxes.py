"""Real containers of podman for branches of their commits: one storage and one image for many tests.

podman is told of its storage by files that the environment names, so Relive's commands find the image there too. Nothing of the
host's containers is seen or touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

from .harness import SERVICES, TOOLS, Relive, eventually

IMAGE = "relive-box:1"
_ENGINE = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{0}/tmp"
[network]
network_config_dir = "{0}/networks"
[containers]
# Soft limits are hard ones: else runc, which may not raise them without CAP_SYS_RESOURCE, starts nothing.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""
_STORAGE = """
[storage]
driver = "{1}"
graphroot = "{0}/graph"
runroot = "{0}/run"
"""
_LIMIT = 60.0  # [s]
_DIRECTORIES = ("proc", "sys", "dev", "tmp", "run", "etc", "data", "var/lib/kept", "scratch")
# What `boxed.py` and `escape.py` need of the standard library, with what these need.
_MODULES = "__future__, ctypes, http.server, json, mmap, pathlib, socket, threading, encodings.idna, encodings.latin_1"


class Boxes:
    """A storage with one image. ``close`` removes its containers and all it has written."""

    def __init__(self, driver: str = "vfs") -> None:
        self.directory = Path(
            tempfile.mkdtemp(prefix="box-", dir="/tmp")
        )  # a run root has 50 characters at most
        for name in ("bin", "networks", "tmp"):
            (self.directory / name).mkdir()
        criu = self.directory / "bin" / "criu"
        criu.write_text(f'#!/bin/sh\nLD_PRELOAD={TOOLS}/prlimit_shim.so exec {TOOLS}/criu "$@"\n')
        criu.chmod(0o755)
        configuration = self.directory / "containers.conf"
        configuration.write_text(_ENGINE.format(self.directory))
        storage = self.directory / "storage.conf"
        storage.write_text(_STORAGE.format(self.directory, driver))
        self.environment = {
            "CONTAINERS_CONF": str(configuration),
            "CONTAINERS_STORAGE_CONF": str(storage),
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
        }
        self._networks: list[str] = []

    def ask(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run podman, whatever comes of it. Output goes to files: its monitors keep a pipe open for as long as they live."""
        command = ["podman", *map(str, arguments)]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                command,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=_LIMIT,
                check=False,
                cwd=self.directory,
            )
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, out.read(), err.read())

    def podman(self, *arguments: str | Path) -> str:
        """Run podman; what it wrote to stdout."""
        done = self.ask(*arguments)
        assert done.returncode == 0, f"podman {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout

    def make_image(self, *programs: str | Path) -> None:
        """An image with Python, the services and these programs, and all the libraries they need."""
        archive = self.directory / "image.tar"
        with tarfile.open(archive, "w") as file:
            for name in _DIRECTORIES:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name in ("tmp", "data") else 0o755
                file.addfile(entry)
            for path in sorted(_python_files() | _with_libraries([Path(one) for one in programs])):
                file.add(path.resolve(), str(path))
            for name in ("boxed.py", "escape.py"):
                file.add(SERVICES / name, name)
        self.podman("import", archive, IMAGE)
        archive.unlink()

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
        self.podman("run", "--detach", f"--name={name}", *words)
        return int(json.loads(self.podman("inspect", name))[0]["State"]["Pid"])

    def boxed(
        self, name: str, *options: str, port: int = 8000, directories: tuple[str, ...] = ("/tmp",)
    ) -> int:
        """Start ``boxed.py``, with Python's own path to it."""
        return self.start(name, *options, IMAGE, python(), "-B", "/boxed.py", str(port), *directories)

    def commit(self, relive: Relive, name: str) -> str:
        """A commit of a container, which runs on; its id."""
        archive = self.directory / f"{name}.tar"
        self.podman(
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
        """End all of it."""
        self.ask("rm", "--all", "--force", "--time=0")
        # A monitor whose container has ended starts podman once more, which writes to these directories.
        eventually(lambda: not self._helpers(), "podman's monitors end")
        for name in self._networks:
            subprocess.run(["ip", "netns", "delete", name], check=True)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((one for one in mounts if one.startswith(f"{self.directory}/")), reverse=True):
            subprocess.run(["umount", "--lazy", point], check=True)
        shutil.rmtree(self.directory)

    def _helpers(self) -> list[str]:
        """Processes that were told of our directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.directory}/".encode() in path.read_bytes():
                    found.append(path.parent.name)
        return found


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
    modules = {Path(line) for line in said.split("\n") if line}
    libraries = {path for path in modules if path.suffix == ".so"} | {Path(python())}
    # By these it finds its library.
    landmarks = {Path(sysconfig.get_path("stdlib")) / "os.py"}
    return modules | landmarks | _with_libraries(sorted(libraries))


def _with_libraries(programs: list[Path]) -> set[Path]:
    found = set(programs)
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        found |= {Path(word) for word in said.split() if word.startswith("/")}
    return found
