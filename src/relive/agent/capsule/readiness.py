"""When a service that was just started is ready, for whoever starts it and goes away (``relive run --detach``)."""

from __future__ import annotations

import os
import threading
import time
from enum import StrEnum

from relive.agent.capsule.lives import Capsule
from relive.errors import CapsuleStartFailed, NotReady
from relive.kernel.pidfds import has_ended, open_process
from relive.kernel.sockdiag import listening_ports
from relive.kernel.wait_status import shell_status
from relive.model.capsule import CaptureWay

__all__ = ["RUN_FOR", "Ready", "await_ready", "listens"]

RUN_FOR = 0.5  # [s] after which a service of which nothing else is known counts as ready
_POLL = 0.02  # [s]


class Ready(StrEnum):
    """When a service is ready: it says so itself (sd_notify), it was executed, or it listens at its port."""

    SERVICE = "service"
    STARTED = "started"
    LISTENING = "listening"


def listens(capsule: Capsule) -> bool:
    """The service listens at its port, and what records it is there: the proxy at its own port, or what takes its packets."""
    spec, init = capsule.facts.spec, capsule.facts.init
    if spec.upstream is None or spec.upstream[1] not in listening_ports(init):
        return False
    if spec.stands_in or spec.capture is CaptureWay.BESIDE:
        return capsule.paths.proxy_socket.exists()
    return spec.listen is None or spec.listen[1] in listening_ports()


def await_ready(capsule: Capsule, how: Ready | None, said: threading.Event, limit: float) -> None:
    """Wait until the service is ready.

    Args:
        how: None: when it listens, if it is known where, else when it has run for ``RUN_FOR`` seconds.
        said: set when it says that it is (READY=1).
        limit: seconds.

    Raises:
        NotReady: it was not in time, and runs on.
        CapsuleStartFailed: it has ended instead, and not with status 0.
    """
    began = time.monotonic()
    if how is None and capsule.facts.spec.upstream is not None:
        how = Ready.LISTENING
    init = open_process(capsule.facts.init, capsule.facts.init_started)
    try:
        while init is not None and not has_ended(init, _POLL):
            past = time.monotonic() - began
            if how is Ready.SERVICE:
                is_ready = said.is_set()
            elif how is Ready.LISTENING:
                is_ready = listens(capsule)
            else:
                is_ready = how is Ready.STARTED or past >= RUN_FOR
            if is_ready:
                return
            if past >= limit:
                raise _not_ready(capsule, how, limit)
    finally:
        if init is not None:
            os.close(init)
    status = capsule.wait_status
    if status != 0:
        raise _ended(capsule, status)


def _not_ready(capsule: Capsule, how: Ready | None, limit: float) -> NotReady:
    spec = capsule.facts.spec
    missing = f"nothing listens at port {spec.upstream[1]}" if spec.upstream is not None else "it runs"
    if how is Ready.SERVICE:
        missing = "it has not said READY=1 to its NOTIFY_SOCKET"
    return NotReady(
        f"{spec.name} is not ready after {limit:g} s; it runs on",
        cause=missing,
        remedy=f"`relive logs {spec.name}` shows what it says; --ready-limit gives it more time, --no-wait does not wait"
        + ("; --upstream names the port if it listens at another" if how is Ready.LISTENING else ""),
    )


def _ended(capsule: Capsule, status: int | None) -> CapsuleStartFailed:
    how = f"with status {shell_status(status)}" if status is not None else "killed"
    lines = capsule.paths.logs[1].read_text(errors="replace").strip().splitlines()
    return CapsuleStartFailed(
        f"{capsule.facts.spec.name} ended before it was ready, {how}",
        cause=lines[-1] if lines else None,
        remedy=f"`relive logs {capsule.facts.spec.name}` shows all that it said",
    )
