"""Asking systemd, through systemctl."""

from __future__ import annotations

import subprocess
from pathlib import Path

from relive.errors import HostIncapable, TargetUnknown, UsageError
from relive.model.limits import KINDS

__all__ = ["Loaded", "load_unit", "reload_and_restart", "unit_name"]

_LIMIT = 120.0  # [s] a service may take long to end and to start
_PROPERTIES = (
    "LoadState",
    "LoadError",
    "NeedDaemonReload",
    "FragmentPath",
    "DropInPaths",
    "User",
    "Group",
    "SupplementaryGroups",
    *(f"Limit{kind.upper()}{soft}" for kind in KINDS for soft in ("", "Soft")),
)


class Loaded(dict[str, str]):
    """Properties of a unit, as `systemctl show` says them."""

    @property
    def files(self) -> list[Path]:
        """The unit's file and its drop-ins, in the order in which systemd reads them."""
        return [Path(path) for path in (self["FragmentPath"], *self["DropInPaths"].split()) if path]


def unit_name(text: str) -> str:
    """The full name of a service's unit; raises UsageError."""
    name = text if text.endswith(".service") else f"{text}.service"
    if "/" in name or name.count(".service") > 1 or name.startswith((".", "-")) or not name.isprintable():
        raise UsageError(f"{text!r} is no service of systemd", remedy="name it as `systemctl` lists it")
    if name.endswith("@.service"):
        raise UsageError(
            f"{name} is a template, which does not run itself",
            remedy=f"name an instance, such as {name.removesuffix('.service')}1.service",
        )
    return name


def load_unit(unit: str) -> Loaded:
    """What systemd knows of a unit.

    Raises:
        HostIncapable: there is no systemd here.
        TargetUnknown: there is no such unit.
    """
    text = _ask("show", unit, f"--property={','.join(_PROPERTIES)}")
    found = Loaded(dict.fromkeys(_PROPERTIES, ""))
    for line in text.splitlines():
        name, _, value = line.partition("=")
        found[name] = value
    if found["LoadState"] != "loaded":
        raise TargetUnknown(
            f"systemd has no unit {unit}",
            cause=found["LoadError"] or f"it is {found['LoadState'] or 'unknown'}",
            remedy="`systemctl list-units --type=service --all` lists all",
        )
    return found


def reload_and_restart(unit: str) -> None:
    """Have systemd read its files again, and restart the unit if it runs; raises HostIncapable.

    It is stopped before: how a service is stopped (KillMode=) is in the files by which it was started.
    """
    runs = "ActiveState=active" in _ask("show", unit, "--property=ActiveState").splitlines()
    if runs:
        _ask("stop", unit)
    _ask("daemon-reload")
    if runs:
        _ask("start", unit)


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(
            ["systemctl", "--no-pager", *words],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    except FileNotFoundError:
        raise HostIncapable(
            "there is no systemctl here",
            remedy="run the service with `relive run` under the supervisor there is",
        ) from None
    except subprocess.TimeoutExpired as error:
        raise HostIncapable(f"`systemctl {' '.join(words)}` did not end within {_LIMIT:g} s") from error
    if done.returncode != 0:
        raise HostIncapable(
            f"`systemctl {' '.join(words)}` failed",
            cause=done.stderr.strip() or f"it ended with status {done.returncode}",
            remedy="`systemctl status` and `journalctl -xe` tell more",
        )
    return done.stdout
