"""``python -m relive.watching.processes.journald UNIT SINCE``: a unit's output as the journal has it, followed.

Each line comes behind its time, as ``watching.output`` reads it. The journal keeps both streams as one.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from relive.kernel import libc
from relive.watching.timestamps import moment

__all__ = ["line_of", "main"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def line_of(entry: dict[str, Any]) -> bytes | None:
    """One entry of ``journalctl --output=json``; None where it is no message of the unit's."""
    message, stamp = entry.get("MESSAGE"), entry.get("__REALTIME_TIMESTAMP")
    if isinstance(message, list):  # bytes that are no UTF-8, as numbers
        with contextlib.suppress(ValueError, TypeError):
            message = bytes(message)
    if isinstance(message, str):
        message = message.encode(errors="replace")
    if not isinstance(message, bytes) or not str(stamp).isdigit():
        return None
    seconds, micro = divmod(int(str(stamp)), 1_000_000)
    when = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micro:06d}Z"
    return b"".join(when.encode() + b" " + line + b"\n" for line in message.split(b"\n"))


def _end_with_us() -> None:
    libc.call("prctl", _DIE_WITH_PARENT, signal.SIGTERM)


def main() -> int:
    """Write until nobody reads."""
    unit, since = sys.argv[1:]
    begin = f"--since=@{moment(since) // 1_000_000_000}"
    command = [
        "journalctl",
        "--follow",
        "--lines=all",
        "--output=json",
        "--quiet",
        begin,
        f"_SYSTEMD_UNIT={unit}",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        preexec_fn=_end_with_us,  # noqa: PLW1509 - this program has one thread
    ) as journal:
        assert journal.stdout is not None
        try:
            for text in journal.stdout:
                line = line_of(json.loads(text))
                if line is not None:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
        except (BrokenPipeError, ValueError):
            pass
        finally:
            journal.kill()
    return journal.returncode


if __name__ == "__main__":
    sys.exit(main())
