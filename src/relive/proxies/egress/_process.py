"""What both recorders of what leaves are as processes: their common options, their word that they are ready, and their end."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from relive.errors import ReliveError
from relive.proxies.running import run

__all__ = ["recorder_parser", "run_recorder", "say", "say_ready"]


def recorder_parser(module: str, description: str) -> argparse.ArgumentParser:
    """For the options that both have; ``module``: the recorder's."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--group", required=True, type=Path, metavar="DIRECTORY")
    parser.add_argument("--capsule", required=True, type=int, metavar="PID")
    parser.add_argument("--recording", required=True, type=Path, metavar="DIR")
    parser.add_argument("--control", required=True, type=Path, metavar="UNIXSOCKET")
    parser.add_argument("--ready-fd", type=int, metavar="N")
    parser.add_argument("--keep-bytes", type=int, metavar="BYTES")
    return parser


def say(text: str) -> None:
    """A line for the log."""
    sys.stderr.write(f"relive egress: {text}\n")


def say_ready(descriptor: int | None) -> None:
    """One line of JSON to who has started it, and no more; None: nobody wants to know."""
    if descriptor is not None:
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode() + b"\n")
        os.close(descriptor)


def run_recorder(serve: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it to its end; returns its exit status."""

    def sentence_of(error: ReliveError) -> str:
        cause = f" ({error.cause})" if error.cause is not None else ""
        return f"Error: {error}{cause}\n"

    return run(serve, sentence_of)
