"""Clocks behind the end of the recording: they go on from the last recorded value, as fast as the real one."""

from __future__ import annotations

import time
from typing import Any, Dict, Optional, Tuple

__all__ = ["Clocks"]


class Clocks:
    """Knows the last value that each source gave."""

    def __init__(self) -> None:
        self._last: Dict[str, Tuple[Any, int]] = {}

    def gave(self, source: str, value: Any) -> None:
        """A recorded value was given now."""
        if type(value) in (int, float):
            self._last[source] = value, time.monotonic_ns()

    def beyond(self, source: str) -> Optional[Any]:
        """What the source shows now; None where nothing is known of it, or its values are no numbers."""
        last = self._last.get(source)
        if last is None:
            return None
        value, at = last
        elapsed = time.monotonic_ns() - at
        return value + elapsed if source.endswith("_ns") else type(value)(value + elapsed / 1e9)
