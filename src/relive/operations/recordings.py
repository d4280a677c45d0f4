"""Recordings: what was kept of each life of a service, and the requests in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from relive.agent.capsule.lives import all_lives
from relive.config import Settings
from relive.errors import NotFound
from relive.incidents.report.masking import Mask, mask_for
from relive.incidents.report.proxied import Proxied, masked_exchange
from relive.model.life_paths import LifePaths
from relive.operations.operation import Params, Result
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchange, ExchangeEnd, Exchanges
from relive.recording.reader import Recording as Events

__all__ = [
    "LifeRecording",
    "RecordedRequest",
    "RequestPage",
    "RequestsParams",
    "list_recordings",
    "list_requests",
    "show_request",
]


class LifeRecording(Result):
    """What is kept of one life of a service.

    Attributes:
        proxy, inside, egress: bytes on disk of what the proxy saw, of what happened inside, and of what it asked of others.
    """

    service: str
    life: str
    is_alive: bool
    started_wall_ns: int
    proxy: int
    inside: int
    egress: int


class RecordedRequest(Result):
    """A request in a list; ``target`` has its secrets masked, ``seconds`` is None while it has no end."""

    number: int
    sequence: int
    method: str
    target: str
    status: int | None
    ended: ExchangeEnd
    began_wall_ns: int
    seconds: float | None


class RequestsParams(Params):
    """Which requests."""

    after: int = Field(
        default=0,
        ge=0,
        le=(1 << 53) - 1,
        description="`next` of the page before, or an event: those that began after it",
    )
    limit: int = Field(default=50, ge=1, le=500, description="At most so many")


class RequestPage(Result):
    """Requests in the order in which they began, a page of them; ``next``: None where there are no more yet."""

    items: list[RecordedRequest]
    next: int | None


def list_recordings(settings: Settings, service: str | None = None) -> list[LifeRecording]:
    """Those of a service, or all, newest first."""
    return [
        LifeRecording(
            service=one.facts.spec.name,
            life=one.paths.directory.name,
            is_alive=one.is_alive,
            started_wall_ns=one.facts.started_wall_ns,
            proxy=_bytes(one.paths.recording),
            inside=_bytes(one.paths.inside),
            egress=_bytes(one.paths.egress),
        )
        for one in reversed(all_lives(settings))
        if service in (None, one.facts.spec.name)
    ]


def list_requests(settings: Settings, service: str, life: str, params: RequestsParams) -> RequestPage:
    """One page of a life's requests; raises NotFound, RecordingError."""
    mask = mask_for(settings, service, life)
    found = _begun_after(settings, service, life, params)
    items = [_line(one, mask) for one in found[: params.limit]]
    return RequestPage(items=items, next=items[-1].sequence if len(found) > params.limit else None)


def show_request(settings: Settings, service: str, life: str, number: int) -> Proxied:
    """One request and its answer, secrets masked; raises NotFound, RecordingError."""
    mask = mask_for(settings, service, life)
    recording = Events(_paths(settings, service, life).recording)
    return mask.model(masked_exchange(Exchanges(recording).by_number(number), mask))


def _begun_after(settings: Settings, service: str, life: str, params: RequestsParams) -> list[Exchange]:
    """The next requests, one more than the page holds, in the order in which they began."""
    recording = Events(_paths(settings, service, life).recording)
    last = params.after
    missing = params.limit + 1
    for event in recording.events(after=params.after):
        if event.kind is EventKind.REQUEST_STARTED:
            last, missing = event.seq, missing - 1
            if not missing:
                break
    return Exchanges(recording).begun_in(params.after, last)


def _line(one: Exchange, mask: Mask) -> RecordedRequest:
    return RecordedRequest(
        number=one.number,
        sequence=one.started_seq,
        method=one.method,
        target=mask.target(one.target),
        status=one.status,
        ended=one.ended,
        began_wall_ns=one.started_wall_ns,
        seconds=one.seconds,
    )


def _paths(settings: Settings, service: str, life: str) -> LifePaths:
    for one in all_lives(settings):
        if (one.facts.spec.name, one.paths.directory.name) == (service, life):
            return one.paths
    raise NotFound(
        f"there is no recording of {service!r} called {life!r}", remedy="list the recordings first"
    )


def _bytes(directory: Path) -> int:
    return sum(_sizes(directory)) if directory.is_dir() else 0


def _sizes(directory: Path) -> Iterator[int]:
    for path in directory.rglob("*"):
        try:
            yield path.stat().st_size
        except FileNotFoundError:  # its retention goes on
            continue
