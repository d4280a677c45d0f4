"""What the service wrote while it served one request: the lines between two sizes of its output, as the proxy noted them."""

from __future__ import annotations

import os
from pathlib import Path

from relive.incidents.report.masking import Mask
from relive.kernel.plainfile import open_plain
from relive.model.failure_stack import lines_of_request
from relive.model.incident import Incident
from relive.model.life_paths import LifePaths
from relive.model.value import Value
from relive.recording.exchanges import Exchange, ExchangeEnd

__all__ = ["Printed", "printed_during"]

_MOST_BYTES = 128 << 10  # of one stream that are read, the last ones
_BEHIND_BYTES = 64 << 10  # behind an answer
_MOST_LINES = 200
_MOST_LINE = 4000  # [characters]


class Printed(Value):
    """Lines of one stream.

    Attributes:
        stream: "stdout" or "stderr".
        lines: the last ones, at most 200; left_out: bytes before them that were written meanwhile, too.
    """

    stream: str
    lines: list[str]
    left_out: int = 0


def printed_during(
    paths: LifePaths, exchange: Exchange | None, incident: Incident, mask: Mask
) -> list[Printed]:
    """Of both streams, standard error first, those that have a line; secrets masked.

    Lines about a failure often follow its answer, so standard error is told until the incident was written down, but for what is
    of other requests by then (``lines_of_request``). Without a request it begins where the incident says.
    """
    found = []
    for log in reversed(paths.logs):
        begin, answered, end = _window(log, exchange, incident, is_error=log == paths.logs[-1])
        one = _printed(log, begin, answered, end, mask) if begin is not None else None
        if one is not None and one.lines:
            found.append(one)
    return found


def _window(
    log: Path, exchange: Exchange | None, incident: Incident, *, is_error: bool
) -> tuple[int | None, int | None, int | None]:
    """Sizes of the log: at the request's begin, at its answer, and when the incident was written down."""
    begin = incident.sighting.log_begin if is_error else None
    end = incident.log_end if is_error else None
    if exchange is None:
        return begin, None, end
    # The recording names them as they lay where it was made; a pulled one lies elsewhere now.
    before = {Path(path).name: size for path, size in exchange.log_offsets_before.items()}
    after = {Path(path).name: size for path, size in exchange.log_offsets_after.items()}
    ends = [size for size in (after.get(log.name), end) if size is not None]
    answered = after.get(log.name) if exchange.ended is ExchangeEnd.ANSWERED else None
    return before.get(log.name, begin), answered, max(ends, default=None)


def _printed(log: Path, begin: int, answered: int | None, end: int | None, mask: Mask) -> Printed | None:
    try:
        with open_plain(log) as file:
            size = file.seek(0, os.SEEK_END)
            end = min(size, end) if end is not None else size
            end = min(end, answered + _BEHIND_BYTES) if answered is not None else end
            start = max(begin, end - _MOST_BYTES)
            file.seek(start)
            # What was freed of the file reads as zeros (``relive.agent.capsule.log_rotation``).
            text = file.read(max(0, end - start)).lstrip(b"\0")
    except OSError:
        return None
    lines = text.decode(errors="replace").splitlines()
    if start > begin:
        lines = lines[1:]  # it may begin in the middle of one
    of_others = 0
    if answered is not None:
        behind = text[len(text) - max(0, end - answered) :].decode(errors="replace").splitlines()
        own = lines_of_request(lines, len(lines) - len(behind))
        of_others, lines = _size(lines[len(own) :]), own
    kept = lines[-_MOST_LINES:]
    masked = [mask.sentence(line[:_MOST_LINE]) for line in kept]
    return Printed(stream=log.stem, lines=masked, left_out=max(0, end - begin - of_others - _size(kept)))


def _size(lines: list[str]) -> int:
    return sum(len(line.encode(errors="replace")) + 1 for line in lines)
