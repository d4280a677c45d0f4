"""Whether a supervisor (systemd, supervisord, a container's engine) runs this command, and what it gave: plain decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relive.agent.capsule.sd_notify import INNER_SOCKET

__all__ = ["Supervision", "read_supervision"]

_OWN_PID = ("LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID")
_SOCKETS = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_SOCKETS_MOST = 1024


@dataclass(frozen=True, slots=True)
class Supervision:
    """What ``read_supervision`` found.

    Attributes:
        is_supervised: the command stands for the service: they end together, and in the same way.
        has_supervisor: somebody starts this command again when it is gone.
        is_unit: systemd started it, as the main process of a unit.
        notify: where systemd hears from the service (NOTIFY_SOCKET); None: nowhere.
        sockets: descriptors from 3 on that the service is to get.
        own_pid: variables that held this process's number.
        environment: the service's.
    """

    is_supervised: bool
    has_supervisor: bool
    is_unit: bool
    notify: str | None
    sockets: int
    own_pid: list[str]
    environment: dict[str, str]


def read_supervision(environment: Mapping[str, str], pid: int, *, wanted: bool | None) -> Supervision:
    """Decide from this process's variables and number.

    Args:
        wanted: what the user says; None: supervised if systemd or supervisord started it, or if it is process 1 (of a container).
    """
    own = [name for name in _OWN_PID if environment.get(name) == str(pid)]
    is_unit = "SYSTEMD_EXEC_PID" in own
    found = is_unit or "SUPERVISOR_PROCESS_NAME" in environment or pid == 1
    sockets = _number(environment.get("LISTEN_FDS")) if "LISTEN_PID" in own else 0
    kept = dict(environment)
    if not sockets:  # they are meant for somebody else
        for name in _SOCKETS:
            kept.pop(name, None)
    notify = kept.get("NOTIFY_SOCKET") or None
    if notify is not None:
        kept["NOTIFY_SOCKET"] = str(INNER_SOCKET)
    return Supervision(
        is_supervised=found if wanted is None else wanted,
        has_supervisor=found or bool(wanted),
        is_unit=is_unit,
        notify=notify,
        sockets=sockets,
        own_pid=[name for name in own if name in kept],
        environment=kept,
    )


def _number(text: str | None) -> int:
    return min(int(text), _SOCKETS_MOST) if text is not None and text.isascii() and text.isdecimal() else 0
