"""The fork server, which spares memory beside each service; none is needed."""

from __future__ import annotations

import os
import subprocess

from relive.doctor.finding import ProbeResult, limited, works
from relive.doctor.probe import ProbeContext
from relive.forkserver.rendezvous import connect, meeting_place
from relive.forkserver.starting import fork_module

__all__ = ["fork_server"]

_ENDS_WITHIN = 5.0  # [s]


def fork_server(context: ProbeContext) -> ProbeResult:
    """Have the one that runs fork a process; none is started, since what is begun here ends with the probe."""
    if not context.settings.fork_server:
        return works("switched off by RELIVE_FORK_SERVER")
    connection = connect(meeting_place(os.environ))
    if connection is None:
        return works("none runs; the next service starts one")
    connection.close()
    nowhere = (subprocess.DEVNULL,) * 3
    forked = fork_module("relive.forkserver.trial", [], streams=nowhere)
    if forked is None or forked.wait(_ENDS_WITHIN) != 0:
        return limited(
            "it runs, and forks nothing",
            cause="it was upgraded under it, or this shell hands down what no fork can take on, such as other limits",
            remedy="nothing need be done: processes beside services are executed, and each takes some 70 MB",
        )
    return works("it runs, and has forked a process")
