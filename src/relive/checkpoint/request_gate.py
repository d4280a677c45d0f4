"""What keeps requests from reaching a target while it is committed. The recording proxy's gate is ``proxies.gate``."""

from __future__ import annotations

from typing import Protocol

from relive.images.image_directory import ImageDirectory
from relive.model.commit import Cursor

__all__ = ["NoRequestGate", "RequestGate"]


class RequestGate(Protocol):
    """Closed before a dump freezes its target, opened when that runs again. All three methods are called in one thread."""

    def close(self) -> Cursor | None:
        """Let nothing more through; returns how far the recording had come. None: nothing is recorded."""

    def settle(self, cursor: Cursor, *, at_once: bool = False) -> Cursor:
        """Called while the target stands still: note which answers had left it by now.

        Args:
            at_once: it was stopped a moment ago only; who reads its answers may not have come to it.
        """

    def open(
        self, capture: str | None, cursor: Cursor | None, images: ImageDirectory | None
    ) -> Cursor | None:
        """Let requests through again; ``capture`` names the commit, None if it failed.

        Args:
            images: CRIU's, of the commit; None where it has no connections.

        Returns how far the recording had come at the commit: ``cursor``, what was known of it before, or what is now.
        """


class NoRequestGate:
    """For targets whose requests are not recorded."""

    def close(self) -> Cursor | None:
        """Nothing to close."""
        return None

    def settle(self, cursor: Cursor, *, at_once: bool = False) -> Cursor:  # noqa: ARG002
        """Nothing to note."""
        return cursor

    def open(
        self,
        capture: str | None,  # noqa: ARG002
        cursor: Cursor | None,
        images: ImageDirectory | None,  # noqa: ARG002
    ) -> Cursor | None:
        """Nothing to open."""
        return cursor
