"""Who carries a published port: one process for each port, which ``port_forward_main`` is the program of."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import sys

from relive.errors import RestoreFailed, UsageError
from relive.kernel import procfs
from relive.model.branch import Publication

__all__ = ["Forwarder"]


class Forwarder:
    """A process that carries bytes between a port of the host and one inside; it ends with the process it is tied to.

    It begins to listen at once, so that who connects before anything runs inside only waits.
    """

    def __init__(self, network: str, host: str, host_port: int, port: int) -> None:
        """Start it.

        Args:
            network: file that names the network namespace it connects in.

        Raises:
            UsageError: the host's port is taken or may not be used.
        """
        try:
            listener = socket.create_server(
                (host, host_port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            raise UsageError(
                f"cannot publish on {host} port {host_port}",
                cause=(error.strerror or str(error)).partition(" (while")[
                    0
                ],  # what Python adds is what was said
                remedy=_remedy(error),
            ) from error
        with listener:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "relive.sandbox.port_forward_main",
                    network,
                    str(port),
                    str(listener.fileno()),
                ],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._host, self._host_port, self._port = host, host_port, port

    def tie_to(self, pid: int) -> Publication:
        """Let it carry until this process ends; returns when it does.

        Raises:
            RestoreFailed: it did not start.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with (
            self._process.stdin as orders,
            self._process.stdout as said,
            contextlib.suppress(BrokenPipeError),
        ):
            orders.write(b"%d\n" % pid)
            orders.flush()
            if said.readline() == b"ready\n":
                stat = procfs.read_stat(self._process.pid)
                return Publication(
                    host=self._host,
                    host_port=self._host_port,
                    port=self._port,
                    forwarder=self._process.pid,
                    forwarder_started=stat.start_ticks if stat is not None else 0,
                )
        raise RestoreFailed("the port was not published", cause="the forwarding process ended")

    def end(self) -> None:
        """Stop it, tied or not."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.terminate()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "publish on another port, or end what listens there (`ss -ltnp` names it)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "publish on a port above 1023, or run it as root"
    return "write [ADDRESS:]PORT:PORT with an address that this host has (`ip address`), or leave the address out for 127.0.0.1"
