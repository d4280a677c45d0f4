"""What ``relive run`` got from whoever started it and hands on, past its agent, to the service."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from relive.model.value import Value

__all__ = ["FIRST_SOCKET", "Handed"]

FIRST_SOCKET = 3  # SD_LISTEN_FDS_START of sd_listen_fds(3)


class Handed(Value):
    """It goes to the agent as JSON; the descriptors keep their numbers.

    Attributes:
        line: descriptor of the line to process 1 by which the service ends with ``relive run``; None: it lives on without.
        sockets: how many descriptors, from ``FIRST_SOCKET`` on, the service gets (LISTEN_FDS).
        own_pid: variables that the service gets with its own process number.
        umask: the service's; None: the agent's.
        is_unit: systemd started it, and keeps its processes together by a control group.
    """

    line: int | None = None
    sockets: int = 0
    own_pid: tuple[str, ...] = ()
    umask: int | None = None
    is_unit: bool = False

    @property
    def descriptors(self) -> list[int]:
        """All that are handed on."""
        sockets = list(range(FIRST_SOCKET, FIRST_SOCKET + self.sockets))
        return sockets if self.line is None else [*sockets, self.line]

    def close(self) -> None:
        """Close them here, where they were only carried."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def own(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment as the calling process, the service's first, is to have it."""
        return {**environment, **dict.fromkeys(self.own_pid, str(os.getpid()))}
