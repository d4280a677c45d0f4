"""Resource limits of a process (getrlimit(2)), as users write them."""

from __future__ import annotations

import re
import resource

from relive.errors import UsageError

__all__ = ["KINDS", "parse_limit"]

KINDS = {
    name.removeprefix("RLIMIT_").lower(): getattr(resource, name)
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}
_LIMIT = re.compile(r"(?P<name>[a-z]+)=(?P<soft>[0-9]{1,19}|infinity)(?::(?P<hard>[0-9]{1,19}|infinity))?")


def parse_limit(text: str) -> tuple[str, int, int]:
    """(name, soft, hard) of ``NAME=SOFT[:HARD]``, such as ``nofile=1024:65536``; raises UsageError."""
    found = _LIMIT.fullmatch(text)
    if found is None or found["name"] not in KINDS:
        raise UsageError(
            f"{text!r} is no limit",
            remedy=f"write NAME=SOFT:HARD, such as nofile=1024:65536; names: {', '.join(sorted(KINDS))}",
        )
    soft = _number(found["soft"])
    hard = _number(found["hard"]) if found["hard"] else soft
    if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
        raise UsageError(f"{text!r} is no limit", cause="the soft limit is above the hard one")
    return found["name"], soft, hard


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "infinity" else min(int(text), (1 << 63) - 1)
