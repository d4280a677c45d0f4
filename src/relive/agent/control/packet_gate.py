"""The gate of a service whose requests are recorded beside their way: it holds nothing back, and knows what had come nevertheless.

How many bytes of each connection had come is in the commit's own images. The recorder (``relive.proxies.ingress.capture``) finds
the place in its recording that has those bytes before it and no others.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from relive.agent.control.proxy_client import ProxyLink
from relive.errors import ReliveError
from relive.images.image_directory import ImageDirectory
from relive.images.sockets import read_crossed
from relive.model.commit import Cursor, OpenRequest

__all__ = ["PacketGate"]

_CLOSE_WITHIN = 5.0  # [s]
_PLACE_WITHIN = 30.0  # [s] what had come before the commit is recorded by then


class PacketGate:
    """Its methods are called from another thread than the loop's; for one commit.

    Args:
        port: at which the service listens.
    """

    def __init__(self, link: ProxyLink | None, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._link = link
        self._loop = loop
        self._port = port
        self._still_at: int | None = None  # CLOCK_REALTIME [ns]

    def close(self) -> Cursor | None:
        """Have nothing recorded that comes later than now."""
        answer = self._ask("close", _CLOSE_WITHIN, at=time.time_ns())
        return Cursor(sequence=answer["cursor"]) if answer.get("op") == "closed" else None

    def settle(self, cursor: Cursor, *, at_once: bool = False) -> Cursor:  # noqa: ARG002
        """Note when. The recorder is not asked: the service stands still."""
        self._still_at = time.time_ns()
        return cursor

    def open(
        self, capture: str | None, cursor: Cursor | None, images: ImageDirectory | None
    ) -> Cursor | None:
        """Go on recording; the cursor is known then. None where it cannot be: nothing is said of the recording."""
        if cursor is None:
            return None
        if capture is None or self._still_at is None:
            self._ask("open", _CLOSE_WITHIN, commit=None)
            return None
        try:
            found = read_crossed(images, self._port) if images is not None else []
            crossed = [[*client, service, *numbers] for client, service, *numbers in found]
        except (OSError, ReliveError):
            self._ask("open", _CLOSE_WITHIN, commit=None)
            return None
        answer = self._ask("open", _PLACE_WITHIN, commit=capture, at=self._still_at, crossed=crossed)
        if answer.get("op") != "opened":
            return None
        place = answer["cursor"]
        requests = [
            OpenRequest(request=one["request"], local_port=one["local_port"]) for one in answer["connections"]
        ]
        return Cursor(sequence=place, settled=place, open_requests=requests)

    def _ask(self, op: str, limit: float, **fields: object) -> dict[str, Any]:
        """What the recorder answers; nothing where it does not."""
        if self._link is None or not self._link.is_open:
            return {}
        future = asyncio.run_coroutine_threadsafe(self._link.ask(op, limit, **fields), self._loop)
        try:
            return future.result(limit + 1)
        except (ConnectionError, TimeoutError):
            return {}
