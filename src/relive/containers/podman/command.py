"""podman's own command, run as root with the environment's configuration.

The command rather than podman's REST service: it is there wherever containers of podman are, while the service is off unless
somebody enabled it and speaks for one configuration only; and it reads storage.conf and containers.conf as the user's own
calls do. One call takes 30 to 100 ms.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.errors import PermissionMissing, ToolMissing
from relive.kernel.pidfds import has_ended

__all__ = ["CommandResult", "PodmanCall", "ask", "refuse_without_root"]

_LIMIT = 120.0  # [s]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a call came to.

    Attributes:
        said: the last line of its stderr, without podman's "Error: "; empty where it was silent.
    """

    status: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        lines = [line for line in self.errors.strip().splitlines() if line.strip()]
        return lines[-1].removeprefix("Error: ") if lines else ""

    def json(self) -> Any:
        """Its output, parsed; raises ValueError where it is no JSON."""
        return json.loads(self.output)


class PodmanCall:
    """A call of podman under way.

    Args:
        path: directories in which it and its runtime look for commands first.
        variables: of its environment, beside the caller's.

    Raises:
        ToolMissing: there is no podman.
    """

    def __init__(
        self,
        *arguments: str | Path,
        path: Sequence[Path] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        environment = dict(os.environ) | dict(variables or {})
        environment["PATH"] = ":".join([*map(str, path), environment.get("PATH", os.defpath)])
        with contextlib.ExitStack() as stack:
            # Files, no pipes: the monitor of a container inherits them and lives as long as the container.
            self._output, self._errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            try:
                self._process = subprocess.Popen(
                    ["podman", *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._errors,
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise ToolMissing(
                    "there is no `podman` in PATH",
                    cause="containers of podman are found with its own command",
                    remedy="install podman, or put it into PATH",
                ) from None
            self._files = stack.pop_all()

    def answer(self, limit: float = _LIMIT) -> CommandResult:
        """Wait for its end, whatever comes of it; to be called once.

        Raises:
            subprocess.TimeoutExpired: it took longer than ``limit`` seconds and was killed.
        """
        with self._files:
            # Not ``wait`` with a timeout, which looks only every 50 ms.
            handle = os.pidfd_open(self._process.pid)
            try:
                if not has_ended(handle, limit):
                    raise subprocess.TimeoutExpired(self._process.args, limit)
            except BaseException:
                self._process.kill()
                raise
            finally:
                os.close(handle)
                status = self._process.wait()
            self._output.seek(0)
            self._errors.seek(0)
            return CommandResult(
                status,
                self._output.read().decode(errors="replace"),
                self._errors.read().decode(errors="replace"),
            )


def ask(*arguments: str | Path, limit: float = _LIMIT) -> CommandResult:
    """Run ``podman ARGUMENTS``, whatever comes of it.

    Raises:
        ToolMissing: there is no podman.
        subprocess.TimeoutExpired: it took longer than ``limit`` seconds and was killed.
    """
    return PodmanCall(*arguments).answer(limit)


def refuse_without_root(what: str) -> None:
    """Raise PermissionMissing for a caller who is not root; ``what`` begins the sentence."""
    if os.geteuid() != 0:
        raise PermissionMissing(
            f"{what} needs root",
            cause=f"this is uid {os.geteuid()}, and CRIU can neither save nor restore a container of podman without root",
            remedy="run it with sudo; root's podman has containers of its own, so start the service with `sudo podman run` as well",
        )
