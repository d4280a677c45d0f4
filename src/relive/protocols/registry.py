"""All protocols that are understood, and which of them is spoken in a dialogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from relive.errors import UsageError
from relive.protocols.http import S3, Http
from relive.protocols.http import OnMiss as HttpOnMiss
from relive.protocols.names import Names
from relive.protocols.names import OnMiss as NamesOnMiss
from relive.protocols.opaque import Plain
from relive.protocols.postgres import OnMiss as PostgresOnMiss
from relive.protocols.postgres import PostgreSQL
from relive.protocols.redis import OnMiss as RedisOnMiss
from relive.protocols.redis import Redis
from relive.protocols.session import Protocol
from relive.recording.dialogues import Dialogue, Tls

__all__ = ["ProtocolRegistry", "protocol_of"]

# What may become of a miss, by kind of call; the first is what becomes of it without a word, and is called "fail" too.
POLICIES: Mapping[str, tuple[str, ...]] = {
    "http-call": ("answer", "reset"),
    "s3-call": ("answer", "reset"),
    "query": ("answer", "reset"),
    "redis-command": ("answer", "reset", "simulate"),
    "name-lookup": ("nxdomain", "servfail"),
    "dialogue-up": ("reset",),
}


class ProtocolRegistry:
    """The protocols of one replay.

    Args:
        on_miss: kind of call (or "*": all that know the word) to what becomes of a question that was not recorded, see
            ``POLICIES``; other kinds and "pass", which are of the recorder in Python processes, are left to that.

    Attributes:
        all: in the order in which they are asked whether they recognise a dialogue. The last one always does.

    Raises:
        UsageError: a policy that the kind does not have.
        ToolMissing: "simulate" without fakeredis.
    """

    def __init__(self, on_miss: Mapping[str, str] | None = None) -> None:
        policy = {kind: _policy(kind, on_miss or {}) for kind in POLICIES}
        self.names = Names(cast(NamesOnMiss, policy["name-lookup"]))
        self.all: tuple[Protocol, ...] = (
            S3(cast(HttpOnMiss, policy["s3-call"])),
            Http(cast(HttpOnMiss, policy["http-call"])),
            PostgreSQL(cast(PostgresOnMiss, policy["query"])),
            Redis(cast(RedisOnMiss, policy["redis-command"])),
            self.names,
            Plain(),
        )

    def protocol_of(self, dialogue: Dialogue, others: Iterable[Dialogue] = ()) -> Protocol:
        """What is spoken in a dialogue; "bytes" where that is nothing that is understood.

        Args:
            others: dialogues with the same destination. Where nothing was said (a connection that a pool opened and did not use),
                the last of these in which something was tells; without one, the port does.
        """
        spoken = dialogue
        if not dialogue.pieces and dialogue.tls is not Tls.CLOSED:
            spoken = next((one for one in reversed([*others]) if one.pieces), dialogue)
        return next(protocol for protocol in self.all if protocol.recognises(spoken))


def protocol_of(dialogue: Dialogue) -> Protocol:
    """The same, with what becomes of a miss left as it is without a word."""
    return ProtocolRegistry().protocol_of(dialogue)


def _policy(kind: str, on_miss: Mapping[str, str]) -> str:
    allowed = POLICIES[kind]
    asked = on_miss.get(kind)
    if asked is None:
        general = on_miss.get("*", allowed[0])
        return general if general in allowed else allowed[0]
    if asked in ("fail", "pass"):
        return allowed[0]
    if asked not in allowed:
        raise UsageError(
            f"--on-miss cannot be {kind}={asked}",
            cause=f"a {kind} that was not recorded can be met with: {', '.join(allowed)}",
            remedy=f"write --on-miss {kind}={allowed[0]}, or leave it out",
        )
    return asked
