"""podman with a storage of its own, with runc and Relive's CRIU; nothing of the host's containers is seen or touched."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from datetime import datetime
from pathlib import Path

from .harness import PROGRAMS, TOOLS, eventually

__all__ = ["Podman", "why_not"]

_CONFIGURATION = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
# Soft limits are hard ones: else runc, which may not raise them without CAP_SYS_RESOURCE, starts nothing.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""
_LIMIT = 60.0  # [s]


class Podman:
    """One podman. ``close`` removes its containers and all it has written.

    Attributes:
        found_by: variables of the environment by which any podman uses this storage and this configuration.
    """

    def __init__(self, driver: str = "vfs") -> None:
        self._driver = driver
        # Short, since podman refuses a run root of more than 50 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="pod-", dir="/tmp"))
        binaries = self.directory / "bin"
        binaries.mkdir()
        criu = binaries / "criu"
        criu.write_text(f'#!/bin/sh\nLD_PRELOAD={TOOLS}/prlimit_shim.so exec {TOOLS}/criu "$@"\n')
        criu.chmod(0o755)
        configuration = self.directory / "containers.conf"
        tmpdir = self.directory / "tmpdir"
        configuration.write_text(_CONFIGURATION.replace("[engine]", f'[engine]\ntmp_dir = "{tmpdir}"'))
        storage = self.directory / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{self.directory}/root"\n'
            f'runroot = "{self.directory}/runroot"\n'
        )
        self.found_by = {"CONTAINERS_CONF": str(configuration), "CONTAINERS_STORAGE_CONF": str(storage)}
        self._environment = {
            **os.environ,
            **self.found_by,
            "PATH": f"{binaries}:{os.environ['PATH']}",
        }

    def ask(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run podman, whatever comes of it. Output goes to files: its monitors keep a pipe open for as long as they live."""
        own = [f"--{name}={self.directory / name}" for name in ("root", "runroot", "tmpdir")]
        command = ["podman", *own, f"--storage-driver={self._driver}", *map(str, arguments)]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                command,
                env=self._environment,
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

    def start_counter(self, name: str) -> None:
        """A container that prints 1, 2, 3 and so on, ten a second."""
        tree = self.directory / "tree" / "bin"
        tree.mkdir(parents=True)
        build = ["gcc", "-O1", "-static", "-nostdlib", "-fno-stack-protector", "-o", tree / "counter"]
        subprocess.run([*build, PROGRAMS / "counter.c"], check=True)
        with tarfile.open(self.directory / "tree.tar", "w") as file:
            file.add(tree.parent, ".")
        self.run("import", self.directory / "tree.tar", "relive-counter:latest")
        self.run(
            "run", "--detach", f"--name={name}", "--network=none", "relive-counter:latest", "/bin/counter"
        )

    def numbers(self, name: str, since: datetime | None = None) -> list[int]:
        """What the counter has printed; of a container that was restored, also before its checkpoint."""
        when = [] if since is None else [f"--since={since.isoformat()}"]
        return [int(line) for line in self.run("logs", *when, name).split()]

    def count_to(self, name: str, least: int, since: datetime | None = None) -> list[int]:
        """Wait until it has printed ``least`` and one more."""
        return eventually(
            lambda: (found := self.numbers(name, since))[-1:] > [least] and found, f"{name} counts to {least}"
        )

    def state(self, name: str) -> str:
        """``running``, ``exited`` and so on."""
        return str(json.loads(self.run("inspect", name))[0]["State"]["Status"])

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


def why_not() -> str | None:
    """Why podman cannot run a container here; None where it can. Found out by doing it."""
    for tool in ("podman", "runc"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}` in PATH; scripts/setup/packages.sh test installs it"
    if os.geteuid() != 0:
        return "needs root"
    podman = Podman()
    try:
        podman.start_counter("probe")
        podman.count_to("probe", 1)
    except AssertionError as error:
        return f"podman cannot run a container here: {error}"
    finally:
        podman.close()
    return None
