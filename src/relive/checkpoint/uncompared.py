"""Which micro-commits believed the kernel's objects and were not compared since (``native/micro/audit.h``), whichever agent died.

Of each life a file says so in spans of time, from the last commit that was compared to the last on the same base. So nothing is
written for a commit, but once for each comparison; what a dead agent left open is closed by the next one. A damaged file makes all
commits of its life count as not compared, and is written anew so at the next full one. It goes when no commit of its life is left.

Those that believed memory's counters are in spans of their own, which no comparison ends: what one commit finds of pages and
mappings says nothing of those before it (``native/micro/audit.h``). All of a base are in one span, compared ones, too.

A file is the CRC-32 of the rest (8 hex digits), a space, and a JSON array of spans, each an array of ``UncomparedSpan``'s values.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import Manifest

__all__ = [
    "SpansDamaged",
    "UncomparedChain",
    "UncomparedSpan",
    "closed",
    "damaged_spans",
    "drop_spans",
    "key_of",
    "latest_wall_ns",
    "path_of",
    "read_spans",
    "spans_of",
]

_SPANS_MOST = 256  # of a life; more are joined, and what was taken between them counts, too


class SpansDamaged(OSError):
    """The file is there and can be read, and tells nothing."""


class UncomparedSpan(NamedTuple):
    """Commits taken after ``after_ns`` up to ``until_ns`` (CLOCK_MONOTONIC), None: and on.

    Attributes:
        kernel: which was believed; "": any. wall_ns: when it was last compared, or the first of them taken.
        boot: the boot id of the host's kernel, in which these times were; "": not known.
        of_memory: it was memory's counters that were believed, else other objects of the kernel; files of before do not tell.
    """

    after_ns: int
    until_ns: int | None
    wall_ns: int
    kernel: str
    boot: str
    of_memory: bool = False

    def holds(self, taken_ns: int) -> bool:
        """A commit of its life that was taken then is one of them."""
        return self.after_ns < taken_ns and (self.until_ns is None or taken_ns <= self.until_ns)

    def believed(self, kernel: str) -> bool:
        """It was this kernel that was believed, or may have been."""
        return self.kernel in ("", kernel)


def closed(spans: Sequence[UncomparedSpan], until_ns: int, boot: str) -> list[UncomparedSpan]:
    """Those that are open end there; those without a commit are left out, and many are joined to few.

    One of another boot stays open: its clock is another, so when it ended cannot be said. A container is of one life in many boots.
    """
    ended = [one._replace(until_ns=until_ns) if _is_open(one) and one.boot == boot else one for one in spans]
    kept = [one for one in ended if one.until_ns is None or one.after_ns < one.until_ns]
    return [one for kind in (False, True) for one in _few([one for one in kept if one.of_memory is kind])]


def _few(spans: list[UncomparedSpan]) -> list[UncomparedSpan]:
    """Of one kind."""
    while len(spans) > _SPANS_MOST:
        first, second, *rest = spans
        spans = [_joined(first, second), *rest]
    return spans


def _is_open(span: UncomparedSpan) -> bool:
    return span.until_ns is None


def _joined(first: UncomparedSpan, second: UncomparedSpan) -> UncomparedSpan:
    until_ns = None if _is_open(first) else second.until_ns
    if first.until_ns is not None and second.until_ns is not None:
        until_ns = max(first.until_ns, second.until_ns)
    return UncomparedSpan(
        after_ns=min(first.after_ns, second.after_ns),
        until_ns=until_ns,
        wall_ns=min(first.wall_ns, second.wall_ns),
        kernel=first.kernel if first.kernel == second.kernel else "",
        boot=second.boot if _is_open(second) else first.boot,
        of_memory=first.of_memory,
    )


def path_of(home: Path, life: str) -> Path:
    """Where those of a life are."""
    return (
        home / "uncompared" / quote(life, safe="").replace(".", "%2E")
    )  # none has a suffix, as what is being written has


def read_spans(home: Path, life: str) -> list[UncomparedSpan]:
    """Those of a life, the oldest first; none where there is no file.

    Raises:
        SpansDamaged: it is damaged. OSError: it cannot be read.
    """
    try:
        return _read(path_of(home, life))
    except FileNotFoundError:
        return []


def _read(path: Path) -> list[UncomparedSpan]:
    checksum, _, told = path.read_bytes().partition(b" ")
    try:
        if checksum != _checksum(told):
            raise ValueError("its checksum is another")
        return [UncomparedSpan(*one) for one in json.loads(told)]
    except (ValueError, TypeError) as error:
        raise SpansDamaged(f"{path} is damaged: {error}") from error


def _checksum(told: bytes) -> bytes:
    return b"%08x" % zlib.crc32(told)


def spans_of(home: Path, manifest: Manifest) -> list[UncomparedSpan]:
    """Those in which a commit was taken; none: it was compared, or believed nothing. Raises as ``read_spans``."""
    spans = read_spans(home, key_of(manifest.target.life, manifest.target.name))
    return [one for one in spans if one.holds(manifest.taken_monotonic_ns)]


def latest_wall_ns(home: Path) -> int:
    """The latest of all spans of all lives; of a life that cannot be read no commit is restored, whatever it has."""
    latest = 0
    for path in _files(home):
        with contextlib.suppress(OSError):
            latest = max([latest, *(span.wall_ns for span in _read(path))])
    return latest


def _files(home: Path) -> list[Path]:
    return sorted(path for path in (home / "uncompared").glob("*") if path.suffix != ".new")


def damaged_spans(home: Path) -> Iterator[tuple[str, OSError]]:
    """The files that tell nothing, by name, with the reason."""
    for path in _files(home):
        try:
            _read(path)
        except FileNotFoundError:
            continue  # it went meanwhile
        except OSError as error:
            yield path.name, error


def drop_spans(home: Path, needed: Container[str], before_ns: int, boot: str) -> None:
    """Remove the files of what is not among ``needed`` (``key_of``), if they were written before that (CLOCK_REALTIME).

    One with an open span of this boot of the host stays: an agent may rely on its being there, of a service that has no life, too.
    """
    for path in _files(home):
        with contextlib.suppress(FileNotFoundError):
            if unquote(path.name) in needed or path.stat().st_mtime_ns >= before_ns:
                continue
            with contextlib.suppress(SpansDamaged):
                if any(_is_open(span) and span.boot == boot for span in _read(path)):
                    continue
            path.unlink()


def key_of(life: str | None, target: str) -> str:
    """By which spans are found: the life, and of what has none its name."""
    return life or target


class UncomparedChain:
    """What is taken on top of one base; ``begin`` is called for each. Belongs to the thread that takes the commits."""

    def __init__(self, home: Path, kernel: str, boot: str) -> None:
        self._home, self._kernel, self._boot = home, kernel, boot
        self._life: str | None = None
        self._earlier: list[UncomparedSpan] = []
        self._compared_ns: dict[int, int] = {}  # by place in the tree
        self._base_ns = self._last_ns = 0
        self._open: list[UncomparedSpan] = []  # one of each kind at most

    def end(self) -> None:
        """There will be no more. Where that cannot be written, who begins next finds it open, and closes it."""
        spans, self._open = self._open, []
        if spans:
            with contextlib.suppress(OSError):
                self._write([*self._earlier, *spans], self._last_ns, Durability.CONTENT)

    def begin(self, life: str, *, is_of_this_boot: bool) -> None:
        """A full commit of this life is about to be taken; what a dead agent left open ended before.

        Args:
            is_of_this_boot: no commit of this life was taken before the host started.

        Raises:
            OSError: that cannot be read, or not be written.
        """
        self.end()
        self._compared_ns.clear()
        if life != self._life:
            now = time.monotonic_ns()
            try:
                earlier = read_spans(self._home, life)
            except SpansDamaged as error:
                import structlog  # noqa: PLC0415 - each command that lists commits would import it

                structlog.get_logger().error(
                    "which commits of this life were not compared is lost: all so far count as such"
                    + ("" if is_of_this_boot else ", and all that follow"),
                    error=str(error),
                )
                until_ns = now if is_of_this_boot else None
                earlier, kept = [], [UncomparedSpan(-1, until_ns, 0, "", "", kind) for kind in (False, True)]
            else:
                kept = closed(earlier, now, self._boot)
            self._life, self._earlier = life, kept
            if kept != earlier:
                self._write(kept, None, Durability.CONTENT)

    def base_taken(self) -> None:
        """The others follow from now on."""
        self._base_ns = self._last_ns = time.monotonic_ns()

    def note(self, taken_ns: int, compared: Sequence[bool], *, believes_memory: bool) -> None:
        """A commit was taken that is not durable yet.

        Args:
            compared: of each process whether all of it was.
            believes_memory: of some process memory's counters were believed, and not compared.

        Raises:
            OSError: it cannot be written down: the commit must not become durable.
        """
        for place, is_compared in enumerate(compared):
            if is_compared:
                self._compared_ns[place] = taken_ns
        since = min(
            (self._compared_ns.get(place, self._base_ns) for place in range(len(compared))), default=taken_ns
        )
        known = {one.of_memory: one for one in self._open}
        begun = dict(known)
        if False not in known or since > known[False].after_ns:
            begun[False] = self._span(since, of_memory=False)
        if believes_memory and True not in known:
            begun[True] = self._span(self._last_ns, of_memory=True)
        self._last_ns = taken_ns
        if begun != known:
            self._open = list(begun.values())
            self._write([*self._earlier, *self._open], None, Durability.NAME)

    def _span(self, after_ns: int, *, of_memory: bool) -> UncomparedSpan:
        return UncomparedSpan(after_ns, None, time.time_ns(), self._kernel, self._boot, of_memory)

    def _write(self, spans: Sequence[UncomparedSpan], until_ns: int | None, durability: Durability) -> None:
        assert self._life is not None
        if until_ns is not None:
            self._earlier = spans = closed(spans, until_ns, self._boot)
        path = path_of(self._home, self._life)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        told = json.dumps(spans).encode()
        replace_file(path, _checksum(told) + b" " + told, durability=durability)
