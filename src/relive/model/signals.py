"""Signals as users write them."""

from __future__ import annotations

import signal

from relive.errors import UsageError
from relive.model.text import is_number

__all__ = ["parse_signal"]


def parse_signal(text: str) -> int:
    """TERM, SIGTERM, 15 or RTMIN+3 as systemd writes them; raises UsageError."""
    name, plus, more = text.removeprefix("SIG").partition("+")
    found = int(name) if is_number(name) else signal.Signals.__members__.get(f"SIG{name}", 0)
    if found and is_number(more):
        found += int(more)
    if not 0 < found <= signal.SIGRTMAX or (plus and not is_number(more)):
        raise UsageError(f"{text!r} is no signal", remedy="name one, such as TERM or QUIT")
    return found
