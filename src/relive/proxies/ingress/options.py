"""What the command line of the ingress proxy says."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CAPTURE", "DEFAULT_BODY_LIMIT", "RELAY", "ProxyOptions", "parse_options"]

DEFAULT_BODY_LIMIT = 16 * 1024 * 1024
CAPTURE = "relive-capture"
RELAY = "relay_library.so"
"""The file that ``--relay`` names, among the tools that set-up built."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What the command line says; see ``proxy``.

    Attributes:
        listen, upstream: ``ADDR:PORT``; an IPv6 address in brackets.
        hang_after: seconds; None watches for no hangs.
        body_limit: bytes kept of each body, and of each direction of a stream.
        answer_limit: of the body of an answer with a 2xx status whose head says that it is longer, only the beginning is kept;
            ``body_limit`` or more: all of it is. Of ``capture`` only.
        keep_bytes, keep_seconds: bounds of the recording's size and age; None keeps everything.
        logs: files whose sizes are recorded with requests; they need not exist yet.
        stand_in: the upstream's own port is taken; ``listen`` then says at which address, ``0.0.0.0``: at all of them.
        front: where the listener is given away (``native/init/front.h``); None: the proxy binds its own.
        capsule: the process with which the recorder ends where no agent ends it; 0: with none.
        relay: ``relay_library.so``, by which plain HTTP/1 is carried; None: all of it is carried by Python.
        capture: ``relive-capture``, by which packets are taken; network: a process in whose network they are, 0: this one. Both of
            ``capture`` only.
    """

    listen: str
    upstream: str
    recording: Path
    control: Path
    ready_fd: int | None = None
    every_request: bool = False
    hang_after: float | None = None
    body_limit: int = DEFAULT_BODY_LIMIT
    answer_limit: int = DEFAULT_BODY_LIMIT
    keep_bytes: int | None = None
    keep_seconds: float | None = None
    logs: tuple[str, ...] = ()
    stand_in: bool = False
    front: Path | None = None
    capsule: int = 0
    relay: Path | None = None
    capture: Path | None = None
    network: int = 0


def parse_options(arguments: Sequence[str]) -> ProxyOptions:
    """The options of a command line; argparse ends the process with status 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m relive.proxies.ingress.proxy", description="Record what crosses."
    )
    parser.add_argument("--listen", required=True, metavar="ADDR:PORT")
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT")
    parser.add_argument("--recording", required=True, type=Path, metavar="DIR")
    parser.add_argument("--control", required=True, type=Path, metavar="UNIXSOCKET")
    parser.add_argument("--ready-fd", type=int, metavar="N")
    parser.add_argument("--every-request", action="store_true")
    parser.add_argument("--hang-after", type=float, metavar="SECONDS")
    parser.add_argument("--body-limit", type=int, default=DEFAULT_BODY_LIMIT, metavar="BYTES")
    parser.add_argument("--answer-limit", type=int, default=DEFAULT_BODY_LIMIT, metavar="BYTES")
    parser.add_argument("--keep-bytes", type=int, metavar="BYTES")
    parser.add_argument("--keep-seconds", type=float, metavar="SECONDS")
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--front", type=Path, metavar="UNIXSOCKET")
    parser.add_argument("--capsule", type=int, default=0, metavar="PID")
    parser.add_argument("--relay", type=Path, metavar="FILE")
    parser.add_argument("--capture", type=Path, metavar="FILE")
    parser.add_argument("--network", type=int, default=0, metavar="PID")
    parser.add_argument("--log", action="append", default=[], dest="logs", metavar="FILE")
    values = vars(parser.parse_args(arguments))
    return ProxyOptions(**values | {"logs": tuple(values["logs"])})
