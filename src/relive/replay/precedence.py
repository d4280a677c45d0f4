"""Which recorder answers where several recorded the same call. This is the one rule; docs/replay-network.md tells it to users.

1. What a library did within another recorded call (HTTP within S3, a connection within a query) is part of that call: the outermost
   call is answered, and the inner ones never happen (``recording.events.is_within_a_call``).
2. The recorder inside a Python process answers before the border does: it knows what was asked as the program saw it, also on
   connections that were encrypted, shared or pooled, and errors and cancellations as the driver told them.
3. What the recorder inside has no whole answer to (its event was lost, its body was too long to keep, it does not know the library)
   goes to the border, if that was recorded: there the bytes are, as they came. Not so queries of databases: their connections are
   played too, and lead nowhere.
4. What neither knows is a miss, and makes the verdict weaker (``cause.missing_words``).

Who names kinds by ``--on-miss`` decides for these.
"""

from __future__ import annotations

from collections.abc import Mapping

from relive.recording.events import EventKind

__all__ = ["BORDER_KINDS", "inside_policy"]

BORDER_KINDS = (EventKind.HTTP_CALL, EventKind.S3_CALL, EventKind.REDIS_COMMAND)


def inside_policy(on_miss: Mapping[str, str], *, has_border: bool) -> dict[str, str]:
    """What becomes of a call to which the recorder inside has no answer: kind of event, or "*", to "fail" or "pass".

    Args:
        on_miss: as the user asks, in words of the recorder inside or of stubs; the latter mean that stubs shall be asked.
        has_border: stubs answer in the branch from what was recorded at the border.
    """
    asked = {kind: word if word in ("fail", "pass") else "pass" for kind, word in on_miss.items()}
    default = dict.fromkeys((kind.value for kind in BORDER_KINDS), "pass") if has_border else {}
    if "*" in asked:
        default = {}
    return {"*": "fail", **default, **asked}
