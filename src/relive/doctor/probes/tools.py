"""The programs that set-up made: each is there and does something."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.watchdog import Watchdog
from relive.doctor.finding import Obstacle, ProbeResult, in_words, works
from relive.doctor.probe import ProbeContext

__all__ = ["tools"]

_SETUP = "run `make setup`"
_NO_ORDERS = 1  # what relive-init ends with when nobody can give it orders
_NOT_ENTERED = 125  # what relive-enter ends with when nobody says where to
_COMMANDS = ("nsenter",)  # of util-linux: CRIU enters a capsule with it


def tools(context: ProbeContext) -> ProbeResult:
    """Start each program, load the library."""
    found = CriuTools(context.settings.tools_path)
    shims = (
        found.prlimit_shim,
        found.tcp_dump_shim,
        found.wait_shim,
        found.tcp_restore_shim,
        found.template_shim,
        found.pages_shim,
    )
    parts = (found.criu, found.init, found.enter, found.watchdog, *shims)
    missing = [path.name for path in parts if not path.exists()]
    if missing:
        raise Obstacle(
            f"missing: {', '.join(missing)}",
            cause=f"not in {found.directory}: set-up did not run for it",
            remedy=f"set RELIVE_TOOLS to where they are, or {_SETUP}",
        )
    version = _ask([str(found.criu), "--version"], 0).partition("Version:")[2].split("\n")[0].strip()
    _ask([str(found.init), "--await", "9"], _NO_ORDERS)
    _ask([str(found.enter)], _NOT_ENTERED)
    with Watchdog(found.watchdog) as watchdog, watchdog.watching(os.getpid(), 5.0):
        pass
    for shim in shims:
        _load(shim)
    absent = [name for name in _COMMANDS if shutil.which(name) is None]
    if absent:
        raise Obstacle(
            f"missing: {', '.join(absent)}", cause="not in PATH", remedy="install Debian's util-linux"
        )
    return works(
        f"CRIU {version}, relive-init, relive-enter, relive-watchdog, {len(shims)} libraries for CRIU"
    )


def _ask(command: list[str], status: int) -> str:
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=3, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise Obstacle(f"{name} does not start", cause=in_words(error), remedy=_SETUP) from None
    if done.returncode != status:
        words = (done.stderr or done.stdout).strip().split("\n")[
            0
        ] or f"it ended with status {done.returncode}"
        raise Obstacle(f"{name} does not work", cause=words, remedy=_SETUP)
    return done.stdout


def _load(library: Path) -> None:
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise Obstacle(f"{library.name} cannot be loaded", cause=str(error), remedy=_SETUP) from None
