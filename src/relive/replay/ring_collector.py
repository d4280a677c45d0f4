"""What the processes of a branch write into their rings, taken while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.recording.events import Event, EventKind
from relive.recording.rings import RingReader

__all__ = ["BranchDrain"]

_PERIOD = 0.02  # [s]
_MOST = 200_000  # events that are kept
_RING = re.compile(r"(?P<pid>[0-9]{1,19})-[0-9a-f]+\.ring")


class BranchDrain:
    """Reads the rings of one branch. For one event loop.

    Attributes:
        events: in the order of time, each with its process's ``pid`` in the fields.
        troubles: what could not be read, or was lost.
    """

    def __init__(self, rings: Path) -> None:
        self.events: list[Event] = []
        self.troubles: list[str] = []
        self._rings = rings
        self._readers: dict[str, RingReader | None] = {}

    async def run(self) -> None:
        """Look again and again until it is cancelled."""
        while True:
            self.drain()
            await asyncio.sleep(_PERIOD)

    def drain(self) -> None:
        """Take all that is there now."""
        for path in sorted(self._rings.glob("*.ring")):
            match = _RING.fullmatch(path.name)
            if match is not None:
                self._collect(path, int(match["pid"]))

    def _collect(self, path: Path, pid: int) -> None:
        try:
            if path.name not in self._readers:
                self._readers[path.name] = RingReader(path)
            reader = self._readers[path.name]
            if reader is None:
                return
            lost = reader.lost
            taken = reader.read_new()
            reader.note_taken()
        except RecordingCorrupt as error:
            self.troubles.append(str(error))
            self._readers[path.name] = None
            return
        except FileNotFoundError:
            return
        if reader.lost > lost:
            self.troubles.append(
                f"{reader.lost - lost} bytes of events of the branch were overwritten before they were read"
            )
        room = max(0, _MOST - len(self.events))
        self.events += [dataclasses.replace(one, fields={**one.fields, "pid": pid}) for one in taken[:room]]

    def has_handled(self, pid: int, request: int) -> bool:
        """The handler of that request has ended."""
        return any(
            event.kind is EventKind.HANDLING_ENDED and (event.fields["pid"], event.request) == (pid, request)
            for event in reversed(self.events)
        )

    def close(self) -> None:
        """Take what is left and let go."""
        with contextlib.suppress(OSError):
            self.drain()
        for reader in self._readers.values():
            if reader is not None:
                reader.close()
        self.events.sort(key=lambda event: event.mono_ns)
