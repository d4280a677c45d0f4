"""What to send again, and when: decided from the recording alone.

Terms: requests *continue* that the commit holds half served: their connection is in it. Requests are *sent again* that
began after the commit, and those that had reached the service's port before it but were not yet accepted. The *subject*
is the request whose outcome is judged. Order and overlap are kept by *waits*: a request waits for the end of every request
that had ended, in the recording, before it began. What clients sent that was not HTTP/1 is sent again in its order, each piece
after all that the service had said on such connections before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from relive.model.commit import Manifest
from relive.recording.connections import Closing, Connections
from relive.recording.exchanges import Exchange, ExchangeEnd

__all__ = ["Hangup", "Pace", "ReplayPlan", "ReplayStep", "make_plan"]


class Pace(StrEnum):
    """When a request that waits for nothing more is sent."""

    RECORDED = "recorded"  # not before as much time has passed since the commit as in the recording
    FAST = "fast"  # at once


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One request.

    Attributes:
        continues: it is in the commit; only what was sent of it later is sent.
        after_commit_ns: when it began, counted from the commit.
        waits_for: numbers of requests that must have ended before.
        held_ms: it is sent so much later than it could be.
        worker: number inside of the process that had it, where several take requests; None: one, or it is not known.
    """

    exchange: Exchange
    continues: bool
    after_commit_ns: int
    waits_for: frozenset[int]
    held_ms: float = 0.0
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class Hangup:
    """A client's connection that ends: a server that serves one after the other takes the next only then.

    Attributes:
        connection: as the recording counts; port: of the client's end that the commit holds, or None.
        after_commit_ns, waits_for: as of a step.
    """

    connection: int
    port: int | None
    after_commit_ns: int
    waits_for: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Steps in the order in which they began.

    Attributes:
        hangups: connections that ended before the failure.
        conversations: what clients said since the commit that was not HTTP/1; None: nothing is known of it.
        start_ns: monotonic time of the commit.
        subject: number of the request that is judged; None: the service's own end is.
        until_ns: when the failure was seen, counted from the commit.
        answered: ports of the proxy's ends of connections in the commit on which nothing was being served. It had taken all
            answers on them, though the service's kernel may not have known: acknowledgements are delayed (tcp(7)).
    """

    steps: list[ReplayStep]
    subject: int | None
    until_ns: int
    left_out: list[int] = field(default_factory=list)
    answered: frozenset[int] = frozenset()
    hangups: list[Hangup] = field(default_factory=list)
    conversations: Connections | None = None
    start_ns: int = 0

    @property
    def sends_nothing(self) -> bool:
        """There is neither a request nor anything else to be sent."""
        return not self.steps and (self.conversations is None or not self.conversations.turns)


def make_plan(
    manifest: Manifest,
    begun_after: list[Exchange],
    open_at_commit: list[Exchange],
    subject: int | None,
    failed_mono_ns: int,
    found: Connections | None = None,
) -> ReplayPlan:
    """Decide.

    Args:
        found: connections after the commit's cursor, up to the failure; None: nothing is done with any.
        begun_after: exchanges that began after the commit's cursor, up to the failure.
        open_at_commit: exchanges that had begun and not ended at the cursor.
        failed_mono_ns: monotonic time of the failure.
    """
    ports = {connection.peer[1] for connection in manifest.connections if connection.inward}
    again: list[tuple[Exchange, bool]] = []
    left_out = []
    settled = manifest.cursor.settled if manifest.cursor is not None else 0
    for exchange in open_at_commit:
        if exchange.ended_seq is not None and exchange.ended_seq <= settled:
            continue  # the service had answered it, and the answer was on its way
        if exchange.local_port in ports and not exchange.is_http2:
            again.append((exchange, True))
        elif exchange.local_port in ports and exchange.number != subject:
            left_out.append(
                exchange.number
            )  # the branch goes on with what it has of it; its stream cannot be joined
        elif _can_be_sent(exchange):
            again.append((exchange, False))
        else:
            left_out.append(exchange.number)
    for exchange in begun_after:
        if _can_be_sent(exchange) or exchange.number == subject:
            again.append((exchange, False))
        else:
            left_out.append(exchange.number)
    again.sort(key=lambda pair: pair[0].started_seq)
    start = manifest.taken_monotonic_ns
    steps = [
        ReplayStep(
            exchange,
            continues,
            max(0, exchange.started_mono_ns - start),
            _waits(exchange, [other for other, _ in again]),
        )
        for exchange, continues in again
    ]
    answered = ports - {exchange.local_port for exchange, continues in again if continues}
    return ReplayPlan(
        steps,
        subject,
        max(0, failed_mono_ns - start),
        left_out,
        frozenset(answered),
        _hangups(found, start, [exchange for exchange, _ in again]),
        found,
        start,
    )


def _hangups(found: Connections | None, start_ns: int, exchanges: list[Exchange]) -> list[Hangup]:
    """Of connections with HTTP/1; in a conversation the end of the connection is one of its turns."""
    if found is None:
        return []
    closings = [one for one in found.closings if one.connection not in found.conversations]
    return [_hangup(one, start_ns, exchanges) for one in closings]


def _hangup(closing: Closing, start_ns: int, exchanges: list[Exchange]) -> Hangup:
    own = [one for one in exchanges if one.ended_seq is not None and one.ended_seq < closing.seq]
    waits = frozenset(one.number for one in own)
    return Hangup(closing.connection, closing.local_port, max(0, closing.mono_ns - start_ns), waits)


def _can_be_sent(exchange: Exchange) -> bool:
    return exchange.sent_seq is not None and not exchange.request_cut and not exchange.by_relive


def _waits(exchange: Exchange, others: list[Exchange]) -> frozenset[int]:
    return frozenset(
        other.number
        for other in others
        if other.number != exchange.number
        and other.ended in (ExchangeEnd.ANSWERED, ExchangeEnd.BROKEN)
        and other.ended_seq is not None
        and other.ended_seq < exchange.started_seq
    )
