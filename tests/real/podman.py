"""podman with a storage of its own, with runc and Relive's CRIU; nothing of the host's containers is seen or touched.

It is told of its storage by files that the environment names, so Relive's commands find images and containers there too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from support.waiting import eventually

from .harness import PROGRAMS, TOOLS, compiled
from .rootfs import Rootfs

__all__ = ["Podman", "why_not"]

_CONFIGURATION = """
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
_CRIU = f'#!/bin/sh\nLD_PRELOAD={TOOLS}/prlimit_shim.so exec {TOOLS}/criu "$@"\n'
_LIMIT = 60.0  # [s]


class Podman:
    """One podman. ``close`` removes its containers and all it has written.

    Attributes:
        found_by: variables of the environment by which any podman uses this storage and this configuration.
    """

    def __init__(self, driver: str = "vfs") -> None:
        # Short, since podman refuses a run root of more than 50 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="pod-", dir="/tmp"))
        for name in ("bin", "networks", "tmp"):
            (self.directory / name).mkdir()
        criu = self.directory / "bin" / "criu"
        criu.write_text(_CRIU)
        criu.chmod(0o755)
        self.found_by = {
            "CONTAINERS_CONF": self._configured("containers.conf", _CONFIGURATION.format(self.directory)),
            "CONTAINERS_STORAGE_CONF": self._configured(
                "storage.conf", _STORAGE.format(self.directory, driver)
            ),
        }

    def ask(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run podman, whatever comes of it. Output goes to files: its monitors keep a pipe open for as long as they live."""
        command = ["podman", *map(str, arguments)]
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                command,
                env=os.environ | self.found_by | {"PATH": path},
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

    @contextlib.contextmanager
    def new_image(self, name: str) -> Iterator[Rootfs]:
        """An image of the files that are added within the block."""
        archive = self.directory / "image.tar"
        with Rootfs(archive) as rootfs:
            yield rootfs
        self.run("import", archive, name)
        archive.unlink()

    def start_counter(self, name: str) -> None:
        """A container that prints 1, 2, 3 and so on, ten a second."""
        program = compiled(
            PROGRAMS / "counter.c", self.directory, "-static", "-nostdlib", "-fno-stack-protector"
        )
        with self.new_image("relive-counter:latest") as rootfs:
            rootfs.file(program, "bin/counter")
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

    def state(self, name: str) -> dict[str, Any]:
        """What podman tells of its state: ``Status``, ``Pid`` and so on."""
        return dict(json.loads(self.run("inspect", name))[0]["State"])

    def close(self) -> None:
        """End all of it."""
        self.ask("rm", "--all", "--force", "--time=0")
        # A monitor whose container has ended starts podman once more, which writes to these directories.
        eventually(lambda: not self._monitors(), "podman's monitors end")
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((one for one in mounts if one.startswith(f"{self.directory}/")), reverse=True):
            subprocess.run(["umount", "--lazy", point], check=True)
        shutil.rmtree(self.directory)

    def _monitors(self) -> list[str]:
        """Processes that were told of our directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.directory}/".encode() in path.read_bytes():
                    found.append(path.parent.name)
        return found

    def _configured(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)


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
