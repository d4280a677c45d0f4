"""Containers to be watched: podman with a storage of its own that the environment names, or the Docker that is there.

Their image has nothing in it: the host's ``/usr`` is mounted into each container, and its network is the host's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ports import free_port

from .harness import SERVICES, TOOLS, Relive, eventually

IMAGE = "relive-watched"
_ENGINE = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{0}/tmp"
[containers]
# Soft limits are hard ones: else runc, which may not raise them without CAP_SYS_RESOURCE, starts nothing.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{0}/graph"
runroot = "{0}/run"
"""
_LIMIT = 60.0  # [s]


class WatchedPodman:
    """One podman. ``close`` removes its containers and all it has written."""

    name = "podman"
    options: tuple[str, ...] = ()

    def __init__(self) -> None:
        # Short, since podman refuses a run root of more than 50 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="wat-", dir="/tmp"))
        binaries = self.directory / "bin"
        binaries.mkdir()
        criu = binaries / "criu"
        criu.write_text(f'#!/bin/sh\nLD_PRELOAD={TOOLS}/prlimit_shim.so exec {TOOLS}/criu "$@"\n')
        criu.chmod(0o755)
        for name, text in (("containers.conf", _ENGINE), ("storage.conf", _STORAGE)):
            (self.directory / name).write_text(text.format(self.directory))
        self.environment = {
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
            "PATH": f"{binaries}:{os.environ['PATH']}",
        }

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

    def run(self, *arguments: str | Path) -> str:
        """Run podman; what it wrote to stdout."""
        done = self.ask(*arguments)
        assert done.returncode == 0, f"podman {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout

    def make_image(self) -> None:
        """Make it."""
        self.run("import", _image_archive(self.directory), f"{IMAGE}:latest")

    def state(self, name: str) -> dict[str, Any]:
        """What podman tells of its state."""
        return dict(json.loads(self.run("inspect", name))[0]["State"])

    def close(self) -> None:
        """End all of it."""
        self.ask("rm", "--all", "--force", "--time=0")
        # A monitor whose container has ended starts podman once more, which writes to these directories.
        eventually(lambda: not self._helpers(), "podman's monitors end")
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


def _image_archive(directory: Path) -> Path:
    """An image of empty directories, and of links into the host's /usr."""
    archive = directory / "image.tar"
    with tarfile.open(archive, "w") as file:
        for path in ("usr", "tmp", "etc", "proc", "sys", "dev", "run", "var", "service"):
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            file.addfile(entry)
        for path in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{path}"
            file.addfile(entry)
    return archive


class WatchedDocker:
    """The Docker of this host, or that of DOCKER_HOST. ``close`` removes the image, and what was written beside."""

    name = "docker"
    # The default of old engines is newer than this kernel's answers: CRIU cannot dump a filter that it cannot read.
    options = ("--security-opt=seccomp=unconfined",)

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="wat-", dir="/tmp"))
        self.environment: dict[str, str] = {}
        self.run("import", _image_archive(self.directory), f"{IMAGE}:latest")

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

    def __init__(self, engine: WatchedPodman | WatchedDocker, relive: Relive, name: str) -> None:
        self.engine, self.name = engine, name
        self.target = f"{engine.name}:{name}"
        self.relive = relive
        self.port, self.proxy = free_port(), free_port()
        self.trigger = engine.directory / f"{name}.d" / "trigger"
        self.trigger.parent.mkdir()

    def __call__(self, *words: str) -> Any:
        """A command of Relive, which finds this podman."""
        return self.relive(*words, environment=self.engine.environment)

    def start(self, *options: str | Path, inside: bool = False) -> None:
        """Start it and wait until it listens."""
        if inside:
            options = (*options, *self("podman-args", "--engine", self.engine.name, IMAGE)["options"])
        mounts = ["/usr:/usr:ro", f"{SERVICES}:/service:ro", f"{self.trigger.parent}:/var:rw"]
        volumes = [word for mount in mounts for word in ("--volume", mount)]
        command = ["/usr/bin/python3", "-B", "/service/watched.py", str(self.port), "/var/trigger"]
        how = ["--detach", f"--name={self.name}", "--network=host", *self.engine.options]
        self.engine.run("run", *how, *volumes, *options, IMAGE, *command)
        eventually(lambda: self.ask("/say", port=self.port), f"{self.name} answers")

    def watch(self, *options: str, every: str = "never") -> dict[str, Any]:
        """Begin the watch, with a proxy, and wait until that takes requests."""
        upstream = ["--listen", f"127.0.0.1:{self.proxy}", "--upstream", f"127.0.0.1:{self.port}"]
        begun = self("watch", self.target, "--every", every, *upstream, *options)
        eventually(lambda: self.ask("/say"), "the proxy takes requests")
        return dict(begun)

    def ask(self, path: str, *, port: int | None = None) -> str:
        """What it answers; by way of the proxy unless a port is given. Raises OSError when it does not answer."""
        address = f"http://127.0.0.1:{port or self.proxy}{path}"
        try:
            with urllib.request.urlopen(address, timeout=_LIMIT) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return f"status {error.code}"

    def incidents(self, kind: str) -> list[dict[str, Any]]:
        """Those of a kind, the oldest first."""
        found = self.relive("incidents", self.name)
        return [one for one in reversed(found) if one["sighting"]["kind"] == kind]

    def incident(self, kind: str) -> dict[str, Any]:
        """Wait for the first of a kind."""
        return eventually(lambda: self.incidents(kind), f"an incident: {kind}")[0]

    def agent(self) -> int:
        """Pid of the agent that watches it."""
        noted = next(self.relive.home.glob(f"capsules/{self.name}/*/agent.pid"))
        return int(noted.read_text().split()[0])
