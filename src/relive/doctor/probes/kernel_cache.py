"""CRIU's cache of what the kernel can do: is it used? Without it every commit and restore takes some 35 ms longer."""

from __future__ import annotations

import os
import platform
import time

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.checkpoint.criu import CriuDied, CriuProcess, CriuTimedOut, CriuTools, base_options
from relive.checkpoint.kernel_cache import kerndat_path
from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext

__all__ = ["kernel_cache"]

_LIMIT = 3.0  # [s]
_DEBUG = 4
_SETUP = "run `make setup`, which makes one for this kernel and this CRIU"


def kernel_cache(context: ProbeContext) -> ProbeResult:
    """Let CRIU look at the kernel, and read in its log where it looked."""
    tools = CriuTools(context.settings.tools_path)
    tools.check()
    began = time.monotonic()
    directory = os.open(context.directory, os.O_RDONLY | os.O_DIRECTORY)
    options = base_options(f"/proc/self/fd/{directory}")
    options.log_level = _DEBUG
    try:
        with CriuProcess(tools, keep=[directory]) as criu:
            criu.ask(rpc.Request(type=rpc.CHECK, opts=options), limit=_LIMIT)
    except (CriuDied, CriuTimedOut) as error:
        raise Obstacle(
            "CRIU gave no answer", cause=f"{type(error).__name__} when asked to look at the kernel"
        ) from None
    finally:
        os.close(directory)
    took = (time.monotonic() - began) * 1000
    log = context.directory / "criu.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    path = kerndat_path(tools.directory)
    if "Loaded kdat cache" not in text:
        made = "is there, but CRIU does not take it" if path.exists() else "is not there"
        return limited(
            f"not used: CRIU needed {took:.0f} ms to look at the kernel",
            cause=f"{path} {made}; every commit and restore spends that time anew",
            remedy=_SETUP,
        )
    key = tools.directory / "criu.kdat.key"
    if key.exists() and key.read_text().split()[:1] != [platform.release()]:
        return limited(
            "used, but made for another kernel",
            cause=f"it was made for {key.read_text().split()[0]}, this is {platform.release()}; CRIU does not notice",
            remedy=_SETUP,
        )
    return works(f"used: {path}")
