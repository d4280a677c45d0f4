"""Bringing the recorder to life in a process that has just started."""

import os
import sys
from typing import Any, Callable, Dict, List, Tuple

from relive_recorder import bodies, context, lanes, options, playing, quick, scrub
from relive_recorder.playing import joining
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.scrub import Scrubber

__all__ = ["start"]


def start() -> None:
    """Read the options, make the ring, install every kind that is asked for; nothing happens without the variable.

    Raises:
        Exception: whatever goes wrong; nothing was changed yet, or the recorder is off.
    """
    text = os.environ.get(options.VARIABLE)
    if not text:
        return
    chosen = options.Options.from_text(text)
    native = quick.load() if chosen.quick else None
    if native is not None:
        context.in_c(native)
        bodies.sum_by(native.crc32)
    scrub.check_with(native.Checker if native is not None else None)
    recorder.scrubber = Scrubber(chosen.secret_patterns, chosen.secret_names)
    recorder.scrubber.learn_environment(os.environ)
    recorder.on_brought_back = playing.begin
    command = recorder.scrubber.words(joining.command())
    joined = joining.join(chosen.rings, command)
    mode = REPLAY if chosen.answers or joined is not None else RECORD
    recorder.start(chosen, mode, quick_kind=native.Quick if native is not None else None)
    if chosen.answers:
        playing.begin_afresh(chosen.answers)
    elif joined is not None:
        playing.begin_started(joined)
    lanes.install()
    about: Dict[str, Any] = {
        "python": sys.version.split()[0],
        "argv": recorder.arguments(),
        "command": command,
    }
    about["quick"] = native is not None
    if native is None:
        about["why_not_quick"] = quick.why_not
    recorder.emit("process-started", about)
    for name, install in _installers():
        if name not in chosen.off:
            install()


def _installers() -> List[Tuple[str, Callable[[], None]]]:
    from relive_recorder.failure import hooks
    from relive_recorder.kinds import (
        clock,
        databases,
        dates,
        environment,
        files,
        http,
        logs,
        processes,
        randomness,
    )
    from relive_recorder.servers import aiohttp_web, asgi, jobs, wsgi

    return [
        ("aiohttp", aiohttp_web.install),
        ("asgi", asgi.install),
        ("clock", clock.install),
        ("clock", dates.install),
        ("environment-read", environment.install),
        ("failure", hooks.install),
        ("file-read", files.install),
        ("http-call", http.install),
        ("job", jobs.install),
        ("log-record", logs.install),
        ("query", databases.install_queries),
        ("random", randomness.install),
        ("redis-command", databases.install_redis),
        ("subprocess", processes.install),
        ("wsgi", wsgi.install),
    ]
