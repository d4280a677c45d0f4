"""What a fresh process wanted from others and nobody was there, seen from before its first instruction."""

from __future__ import annotations

from relive.model.outcome import Stranger
from relive.replay.network import Network
from relive.replay.unix_servers import UnixServers

__all__ = ["SandboxWatch"]


class SandboxWatch:
    """Watches one sandbox. ``begin`` it when its process 1 has set it up and started nothing; ``close`` it when that has ended."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._servers: UnixServers | None = None

    def begin(self, init: int, listener: int | None) -> None:
        """Look from now on.

        Args:
            init: host pid of process 1.
            listener: at which each connect(2) in the sandbox asks; it becomes this object's. None: nobody is asked.

        Raises:
            OSError: the sandbox has ended already.
        """
        self._servers = UnixServers()
        if listener is not None:
            self._servers.watch(listener)
        self._network = Network(init)

    def own(self, port: int) -> None:
        """A port of the service itself: who finds nobody there has found no server missing."""
        if self._network is not None:
            self._network.own(port)

    def unreached(self) -> list[Stranger]:
        """What was not reached so far."""
        network = self._network.unreached() if self._network is not None else []
        return [*network, *(self._servers.unreached() if self._servers is not None else [])]

    def troubles(self) -> list[str]:
        """What could not be seen, in sentences."""
        return self._servers.troubles() if self._servers is not None else []

    def close(self) -> None:
        """Let go. May be called again."""
        if self._network is not None:
            self._network.close()
        if self._servers is not None:
            self._servers.close()
