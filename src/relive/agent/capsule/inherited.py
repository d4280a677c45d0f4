"""What ``relive run`` got from whoever started it and hands on, past its agent, to the service."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping

from relive.model.limits import KINDS
from relive.model.value import Value

__all__ = ["FIRST_SOCKET", "InheritedDescriptors"]

FIRST_SOCKET = 3  # SD_LISTEN_FDS_START of sd_listen_fds(3)


class InheritedDescriptors(Value):
    """It goes to the agent as JSON; the descriptors keep their numbers.

    Attributes:
        line: descriptor of the line to process 1 by which the service ends with ``relive run``; None: it lives on without.
        sockets: how many descriptors, from ``FIRST_SOCKET`` on, the service gets (LISTEN_FDS).
        own_pid: variables that the service gets with its own process number.
        umask: the service's; None: the agent's.
        limits: (name, soft, hard) as ``relive.model.limits`` has them.
        is_unit: systemd started it, and keeps its processes together by a control group.
    """

    line: int | None = None
    sockets: int = 0
    own_pid: tuple[str, ...] = ()
    umask: int | None = None
    limits: tuple[tuple[str, int, int], ...] = ()
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

    def apply(self) -> None:
        """Have the calling process, the service's first, take its umask and its limits, while it may; raises OSError."""
        if self.umask is not None:
            os.umask(self.umask)
        for name, soft, hard in self.limits:
            self._limit(KINDS[name], soft, hard)

    @staticmethod
    def _limit(kind: int, soft: int, hard: int) -> None:
        try:
            resource.setrlimit(kind, (soft, hard))
        except ValueError:  # more than this host gives anybody: the most there is, as systemd does
            most = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if soft == resource.RLIM_INFINITY else min(soft, most), most))

    def own(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment as the calling process, the service's first, is to have it."""
        return {**environment, **dict.fromkeys(self.own_pid, str(os.getpid()))}
