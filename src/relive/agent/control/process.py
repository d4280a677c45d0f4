"""What every agent is as a process: its log, its note of who it is, its word to whoever started it."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import structlog

from relive.config import Settings
from relive.incidents.report.masking import FileMask
from relive.kernel import procfs
from relive.kernel.disk_errors import disk_errors
from relive.model.life_paths import LifePaths

__all__ = ["log_to", "note_pid", "notify_starter"]


def note_pid(paths: LifePaths) -> None:
    """Write down which process the agent is; raises StoreError, DiskFull."""
    own = procfs.read_stat(os.getpid())
    with disk_errors("starting the agent"):
        paths.agent_pid.write_text(f"{os.getpid()} {own.start_ticks if own is not None else 0}")


def notify_starter(descriptor: int | None, message: dict[str, object]) -> None:
    """Tell the starter, who reads the other end; None: nobody does."""
    if descriptor is not None:
        os.write(descriptor, json.dumps(message).encode() + b"\n")
        os.close(descriptor)


def log_to(path: Path, settings: Settings) -> None:
    """Have this process log to a file, as JSON lines, without secrets."""
    mask = FileMask.configured(settings)

    def masked(_logger: Any, _method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {name: mask.tree(value) for name, value in event_dict.items()}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            masked,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=path.open("a", buffering=1)),
    )
