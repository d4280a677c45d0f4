"""Where the log of a server goes that a person or a client started: to standard error. Answers are on standard output."""

from __future__ import annotations

import sys

import structlog

__all__ = ["log_to_stderr"]


def log_to_stderr() -> None:
    """To be called once, before anything is served; MCP over stdio has its messages on standard output."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
