"""A systemd that was really booted: process 1 of a PID namespace, with a network, control groups, a journal and units of its own.

It shares this machine's files, but for /run, /dev/shm and the administrator's units. Nothing of the machine's own units is started:
its only target wants the journal. What a test starts must have ``DefaultDependencies=no``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from support.waiting import LIMIT, eventually

__all__ = ["UNITS", "Booted"]

UNITS = Path("/etc/systemd/system")
_SYSTEMD = Path("/usr/lib/systemd/systemd")
_BOOT = """
set -e
mount --make-rprivate /
mount -t cgroup2 cgroup2 {directory}/groups
mkdir {group}
echo $$ >{group}/cgroup.procs
exec unshare --net --pid --ipc --uts --cgroup --mount --fork --kill-child sh -ec '
mount -t proc proc /proc
ip link set lo up
mount -t cgroup2 cgroup2 /sys/fs/cgroup
umount {directory}/groups
mount -t tmpfs tmpfs /dev/shm
cp /run/criu.kdat {directory}/ 2>/dev/null || true
mount -t tmpfs tmpfs /run
cp {directory}/criu.kdat /run/ 2>/dev/null || true
mkdir -p /run/systemd/journald.conf.d
printf "[Journal]\\nStorage=volatile\\nRateLimitBurst=0\\n" >/run/systemd/journald.conf.d/test.conf
mount -t tmpfs tmpfs /etc/systemd/system
printf "[Unit]\\nDefaultDependencies=no\\nAllowIsolate=yes\\nWants=systemd-journald.service\\n" >/etc/systemd/system/small.target
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin {systemd} --system --unit=small.target \\
    --log-target=null --show-status=no
'
"""


class Booted:
    """Boot it; ``close`` ends it, and all that it runs."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="booted-"))
        (self.directory / "groups").mkdir()
        self._group = self.directory / "groups" / self.directory.name
        words = {"directory": self.directory, "group": self._group, "systemd": _SYSTEMD}
        self._outer = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _BOOT.format(**words)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.first = eventually(self._find, "systemd is process 1")
        eventually(lambda: self("is-system-running", check=False) in ("running", "degraded"), "it is up")

    @staticmethod
    def why_not() -> str | None:
        """Why it cannot be booted here."""
        if not _SYSTEMD.exists():
            return "systemd is not installed"
        return None if os.geteuid() == 0 else "it takes root"

    def _find(self) -> int | None:
        assert self._outer.poll() is None, "it did not boot"
        listed = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        return next((int(pid) for pid in listed if Path(f"/proc/{pid}/exe").readlink() == _SYSTEMD), None)

    def say(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside it, as an administrator would."""
        return subprocess.run(
            ["nsenter", "-t", str(self.first), "-m", "-p", "-i", "-u", "-C", "-n", "--", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **variables},
        )

    def __call__(self, *words: str, check: bool = True) -> str:
        """What systemctl says."""
        done = self.say("systemctl", "--no-pager", *words)
        assert not check or done.returncode == 0, f"systemctl {words}: {done.stdout} {done.stderr}"
        return done.stdout.strip()

    def show(self, unit: str, *names: str) -> list[str]:
        """Properties of a unit."""
        text = self("show", unit, *(f"--property={name}" for name in names))
        found = dict(line.split("=", 1) for line in text.splitlines())
        return [found[name] for name in names]

    def inside(self, path: Path) -> Path:
        """A path as its units see it."""
        return Path(f"/proc/{self.first}/root") / str(path).lstrip("/")

    def write(self, unit: str, text: str) -> None:
        """An administrator's unit."""
        target = self.inside(UNITS) / unit
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        self("daemon-reload")

    def journal(self, unit: str) -> list[dict[str, Any]]:
        """What the journal has of a unit's processes, oldest first."""
        self.say("journalctl", "--sync")
        said = self.say("journalctl", "--no-pager", "--output=json", "--all", f"_SYSTEMD_UNIT={unit}").stdout
        return [json.loads(line) for line in said.splitlines()]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)
        self._outer.wait(LIMIT)
        clear = f"mount -t cgroup2 cgroup2 {self.directory}/groups && find {self._group} -depth -type d -exec rmdir {{}} +"
        subprocess.run(["unshare", "--mount", "sh", "-c", clear], check=True)
        shutil.rmtree(self.directory)
