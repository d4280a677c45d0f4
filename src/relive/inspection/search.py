"""Looking for a pattern in all memory of a commit, page file after page file, some megabytes at a time.

Memory that no process has changed is not in the commit (code, untouched pages of mapped files) and is not looked through.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import FrameType

import numpy as np

from relive.errors import UsageError
from relive.images import criu_images_pb2 as pb
from relive.incidents.report.masking import Mask
from relive.inspection.address_space import (
    MappedFiles,
    key_of_process,
    key_of_shared,
    permissions,
    region_name,
)
from relive.inspection.patterns import Pattern
from relive.inspection.reading import SmallImages
from relive.model.value import Value
from relive.store.pages.commit_memory import CommitMemory
from relive.store.pages.page_diff import Pages
from relive.store.pages.runs import PageFile
from relive.store.pages.size import PAGE

__all__ = ["Hit", "MemoryMatches", "MemoryPiece", "find", "pieces"]

_BEFORE, _AFTER = 32, 64  # [bytes] told around a match
_AROUND = 512  # [bytes] of which secrets are taken out before the rest is cut off
_SHOWN = 256  # [bytes] of a match
_NO_TEXT = (
    "\0"  # shown as a dot, which a name could go on with: then what it names would not be known as a secret
)


class Hit(Value):
    """A match.

    Attributes:
        pids: processes in whose memory it is; several share it. Empty where it is in shared memory that nobody maps.
        address: in the first of them; else in the shared memory.
        region: name of the mapping; offset: of the match in it.
        text: the match and what is around it, secrets masked, what is no text as escapes.
        length: bytes of the match.
    """

    pids: list[int]
    address: str
    region: str
    permissions: str
    offset: int
    text: str
    length: int


class MemoryMatches(Value):
    """``more``: there may be others, since no more were asked for; ``searched``: bytes that were looked through."""

    hits: list[Hit]
    more: bool
    searched: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A mapping that shows pages of a page file; ``base``: address of the file's address 0 in it."""

    pid: int
    begin: int
    end: int
    base: int
    name: str
    permissions: str


def find(memory: CommitMemory, pattern: Pattern, mask: Mask, *, most: int, limit: float) -> MemoryMatches:
    """All matches up to so many, by page file and address.

    Args:
        mask: takes secrets out of what is told around a match; what one match tells of a secret is masked in all.
        limit: seconds; an expression can take longer than the universe exists. Only kept in a process's main thread.

    Raises:
        UsageError: it took longer.
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is damaged or sealed.
    """
    places = _places(SmallImages(memory.small))
    hits: list[_Found] = []
    searched = 0
    with _within(limit):
        for key, file in sorted(memory.files.items()):
            with closing(memory.stream(key)) as stream:
                for piece in pieces(stream, file, pattern.overlap + _AROUND):
                    searched += piece.fresh
                    for begin, end in pattern.matches(piece.data):
                        if piece.is_told(begin, pattern.overlap):
                            continue
                        if len(hits) == most:
                            return MemoryMatches(hits=_told(hits, mask), more=True, searched=searched)
                        piece.line.told_until = piece.address + end
                        hits.append(_found(piece, begin, end, places.get(key, [])))
    return MemoryMatches(hits=_told(hits, mask), more=False, searched=searched)


@dataclass(slots=True)
class _Line:
    """What goes from one piece of a run to the next: the address up to which matches were told."""

    told_until: int = 0


@dataclass(slots=True)
class MemoryPiece:
    """Bytes that follow each other in memory.

    Attributes:
        address: of the first; fresh: bytes at the end that no piece before had.
        is_last: the run of pages ends with it.
    """

    address: int
    data: bytes
    fresh: int
    is_last: bool
    line: _Line

    def is_told(self, begin: int, overlap: int) -> bool:
        """A match here belongs to the piece before, or will be found, whole, in the next."""
        if self.address + begin < self.line.told_until:
            return True
        return not self.is_last and begin >= len(self.data) - overlap


def pieces(stream: Iterator[Pages], file: PageFile, overlap: int) -> Iterator[MemoryPiece]:
    """The pages of a file as pieces; one that goes on where another ended begins with so many bytes of that one.

    Args:
        stream: all pages in the file's order.
    """
    runs = iter(file.runs)
    first, left = next(runs, (0, 0))
    rest, line = b"", _Line()
    for pages in stream:
        row = 0
        while row < len(pages):
            while not left:
                first, left = next(runs)
                rest, line = b"", _Line()
            count = min(left, len(pages) - row)
            fresh = pages[row : row + count].reshape(-1).view(np.uint8).tobytes()
            data = rest + fresh
            left -= count
            row += count
            address = first * PAGE - len(rest)
            yield MemoryPiece(address, data, len(fresh), left == 0, line)
            first += count
            rest = data[-overlap:] if left and overlap else b""


@dataclass(frozen=True, slots=True)
class _Found:
    """A match that has no text yet: what is around it, and in that its beginning and end."""

    hit: Hit
    around: str
    begin: int
    end: int


def _told(hits: list[_Found], mask: Mask) -> list[Hit]:
    for one in hits:  # a secret that a later one names may stand in an earlier one without a name
        mask.sentence(one.around)
    return [one.hit.model_copy(update={"text": _text(one, mask)}) for one in hits]


def _found(piece: MemoryPiece, begin: int, end: int, places: list[_Place]) -> _Found:
    address = piece.address + begin
    there = [one for one in places if one.begin <= address + one.base < one.end]
    place = there[0] if there else None
    seen = address + place.base if place is not None else address
    low, shown_end = max(0, begin - _AROUND), min(end, begin + _SHOWN)
    hit = Hit(
        pids=list(dict.fromkeys(one.pid for one in there)),
        address=hex(seen),
        region=place.name if place is not None else "",
        permissions=place.permissions if place is not None else "",
        offset=seen - place.begin if place is not None else 0,
        text="",
        length=end - begin,
    )
    return _Found(hit, _readable(piece.data[low : shown_end + _AROUND]), begin - low, shown_end - low)


def _text(found: _Found, mask: Mask) -> str:
    """The match with what is around it. Secrets are taken out of more than is shown, so that none is cut in two."""
    whole, at = found.around, found.begin
    match = whole[at : found.end]
    masked = mask.sentence(whole)
    if masked != whole:
        shorter = max(0, len(whole) - len(masked))
        place = masked.find(match, max(0, at - shorter))
        at = place if place >= 0 else max(0, min(at, len(masked) - _AFTER))
    return masked[max(0, at - _BEFORE) : at + len(match) + _AFTER].replace(_NO_TEXT, ".")


def _readable(data: bytes) -> str:
    """Text; in the place of each byte that is none, or would steer a terminal, one that ends every name and word."""
    return "".join(chr(byte) if 32 <= byte < 127 else _NO_TEXT for byte in data)


def _places(images: SmallImages) -> dict[str, list[_Place]]:
    """By page file, the mappings that show its pages."""
    mapped = MappedFiles.of(
        images.all("files.img", pb.FileEntry), images.all("memfd.img", pb.MemfdInodeEntry)
    )
    found: dict[str, list[_Place]] = {}
    for entry in images.all("pstree.img", pb.PstreeEntry):
        mm = images.first(f"mm-{entry.pid}.img", pb.MmEntry)
        for vma in mm.vmas if mm is not None else ():
            number = mapped.shared_number(vma)
            key = key_of_process(entry.pid) if number is None else key_of_shared(number)
            base = vma.start - vma.pgoff if number is not None else 0
            assert mm is not None
            place = _Place(
                entry.pid, vma.start, vma.end, base, region_name(vma, mm, mapped.names), permissions(vma)
            )
            found.setdefault(key, []).append(place)
    return found


@contextmanager
def _within(limit: float) -> Iterator[None]:
    """Raises UsageError in the block after so many seconds; does nothing outside of the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> None:
        raise UsageError(
            f"the search took longer than {limit:g} s",
            cause="the expression tries too many ways, or the memory is large",
            remedy="use a plainer expression, or a text",
        )

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
