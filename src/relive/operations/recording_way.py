"""How requests of a service are recorded: beside their way, unless something has to hold them or packets cannot be taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relive.errors import UsageError
from relive.model.capsule import CaptureWay

__all__ = ["RecordingWay", "choose_way", "told_hindrance"]


class RecordingWay(NamedTuple):
    """What records requests.

    Attributes:
        stands_in: a proxy, which takes the service's own port.
        hindrance: why it is a proxy that nobody asked for; None: it is as asked, or as by default.
    """

    capture: CaptureWay
    stands_in: bool = False
    hindrance: str | None = None


def choose_way(
    asked: CaptureWay | None, *, has_upstream: bool, holds: bool, hindrance: Callable[[], str | None]
) -> RecordingWay:
    """The way for a service with a port.

    Args:
        has_upstream: clients are pointed to a proxy that listens elsewhere than the service.
        holds: each request is held until the service is committed.
        hindrance: tells why packets cannot be taken, None where they can; called only where it matters.

    Raises:
        UsageError: packets are asked for; they are not held back, nor do they change their goal.
    """
    if asked is CaptureWay.BESIDE:
        _check_beside(has_upstream=has_upstream, holds=holds)
        return RecordingWay(CaptureWay.BESIDE)
    if has_upstream:
        return RecordingWay(CaptureWay.PROXY)
    if asked is CaptureWay.PROXY or holds:
        return RecordingWay(CaptureWay.PROXY, stands_in=True)
    found = hindrance()
    if found is None:
        return RecordingWay(CaptureWay.BESIDE)
    return RecordingWay(CaptureWay.PROXY, stands_in=True, hindrance=found)


def told_hindrance(hindrance: str) -> str:
    """A sentence for whoever starts or lists what is recorded so."""
    return (
        f"Requests pass a recording proxy: packets of its port cannot be taken on this host ({hindrance}). "
        "`relive doctor` tells more."
    )


def _check_beside(*, has_upstream: bool, holds: bool) -> None:
    if has_upstream:
        raise UsageError(
            "--upstream is for --capture proxy",
            cause="recorded beside their way, requests come to the service itself",
            remedy="leave it out",
        )
    if holds:
        raise UsageError(
            "--every request is for --capture proxy",
            cause="it holds each request back until the service is committed",
            remedy="use --capture proxy, or another --every",
        )
