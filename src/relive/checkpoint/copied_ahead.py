"""Memory that is copied while the target runs, so that CRIU dumps, with the target frozen, only what has changed since.

1. ``relive-tracker`` (``native/tracker.c``) copies the pages of the tree's processes and has the kernel note writes to them.
2. CRIU runs with ``pagemap_shim.so`` (``native/pagemap_shim.c``), which takes pages out of what it dumps that were not written
   since, and notes them.
3. With the target still frozen, ``lacks_nothing`` tells whether there is a copy of each page that was left out. If not, the
   commit has to be taken anew without this.
4. ``merge`` writes, with the target running again, the list of pages that CRIU alone would have written, and says where each of
   them lies: among CRIU's own or among the copies. The store takes them from there.

Only memory goes this way. All else is CRIU's, at one moment, as in any commit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.page_files import copy_bytes, lazy_spans
from relive.checkpoint.page_runs import Placed, Span, difference, newest, placed, union
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, messages, read_first, write_entries
from relive.kernel import procfs
from relive.kernel.children import read_until, wait_or_kill
from relive.store.scattered import ScatteredPages

__all__ = ["CopiedAhead", "scattered_in"]

_PAGE = 4096
_LAZY, _PRESENT = 2, 4
_ENTRY_MOST = 256  # [pages] as CRIU's own
# Runs that are shorter are copied into one file: so there are no more than some 8,000 mappings of all, nor many of few pages.
_MAPPED_LEAST, _MAPPED_MOST = 256, 4096
_RUN = struct.Struct("<QQ")
_LEFT_OUT = struct.Struct("<QQQ")  # pid as CRIU sees it, then as _RUN
_ENDS_WITHIN = 5.0  # [s]
_GONE = "gone"  # it has ended meanwhile
_BEGUN, _READY = b"begun\n", b"ready\n"
_FILTERS_OF_CAPSULES = 2  # of ``relive.kernel.seccomp``; neither ends a process

_FileRun = tuple[int, int, int]  # (which file, first page in it, number of pages)


class CopiedAhead:
    """The copies of one commit, and the process that has changes noted until ``close``; ``discard`` ends it all.

    ``wait_until_begun`` and then ``wait`` are called once each.

    Whatever goes wrong here costs no more than time: what is not tracked, or no longer, CRIU dumps.
    """

    def __init__(
        self, tools: CriuTools, directory: Path, root: int, *, inside: bool, is_capsule: bool
    ) -> None:
        """Begin to copy the memory of a tree, beside whatever the caller does.

        Args:
            directory: is made; on the disk of the images.
            inside: CRIU enters the root's PID namespace.
            is_capsule: the tree's seccomp filters are Relive's.

        Raises:
            OSError: the tracker cannot be started, or the directory cannot be made.
        """
        directory.mkdir()
        self._directory = directory
        self._log = structlog.get_logger().bind(root=root)
        depth = len(_pids(root)) - 1 if inside else 0
        pids = {pid: _pids(pid) for pid in procfs.tree_of(root)}
        # As CRIU sees them, and as its images are named.
        self._seen = {pid: numbers[min(depth, len(numbers) - 1)] for pid, numbers in pids.items()}
        self._inside = {pid: numbers[-1] for pid, numbers in pids.items()}
        self._copies: dict[int, list[Placed]] = {}
        self._copied: dict[int, list[Span]] = {}
        self._said = b""
        self.left_out = os.open(
            directory / "left-out", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._program = [str(tools.tracker)]
        self._of = [str(_FILTERS_OF_CAPSULES if is_capsule else 0), *map(str, pids)]
        try:
            self._process = subprocess.Popen(
                [*self._program, str(directory), *self._of],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(self.left_out)
            raise

    def wait_until_begun(self, limit: float) -> None:
        """Return when the tracker traces no process any more: somebody else may do so then. At most ``limit`` seconds."""
        assert self._process.stdout is not None
        # "ready" may come in the same moment.
        self._said = read_until(self._process.stdout, (_BEGUN, _BEGUN + _READY), limit)
        if _BEGUN not in self._said:
            self._give_up()

    def wait(self, limit: float) -> None:
        """Return when little is left that is not copied, or the tracker has ended, or after ``limit`` seconds."""
        assert self._process.stdout is not None
        if self._said.endswith(_BEGUN):
            self._said += read_until(self._process.stdout, _READY, limit)
            if not self._said.endswith(_READY):
                self._give_up()
        lines = [line.split(maxsplit=2) for line in self._said.decode(errors="replace").splitlines()]
        # Also where it is killed: what it did not finish counts as written, and is dumped.
        self._copies = {int(words[1]): [] for words in lines if words[0] == "tracked" and len(words) == 2}
        for pid in self._copies:
            written = [(first // _PAGE, end // _PAGE) for first, end in self._records(f"{pid}.runs", _RUN)]
            self._copies[pid] = newest(written)
            self._copied[pid] = union(written)
        for words in lines:
            if words[0] in ("skipped", "failed") and words[-1] != _GONE:
                self._log.warning("memory is not copied ahead", what=" ".join(words))

    def _give_up(self) -> None:
        """Copies that nobody waits for would only cost.

        A tracker that is killed at the wrong moment leaves something open in a process that CRIU cannot dump.
        """
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self._program, "-", *self._of],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_ENDS_WITHIN,
            )

    def _records(self, name: str, kind: struct.Struct) -> Iterator[tuple[int, ...]]:
        try:
            data = (self._directory / name).read_bytes()
        except FileNotFoundError:
            return
        # The last of a killed one may be cut.
        yield from kind.iter_unpack(data[: len(data) // kind.size * kind.size])

    def _left_out_of(self) -> dict[int, list[Span]]:
        """What CRIU left out of each process, by the pid that it sees."""
        data = os.pread(self.left_out, os.fstat(self.left_out).st_size, 0)
        found: dict[int, list[Span]] = {}
        for seen, first, end in _LEFT_OUT.iter_unpack(data[: len(data) // _LEFT_OUT.size * _LEFT_OUT.size]):
            found.setdefault(seen, []).append((first // _PAGE, end // _PAGE))
        return {seen: union(spans) for seen, spans in found.items()}

    def lacks_nothing(self) -> bool:
        """There is a copy of each page that CRIU left out. To be asked with the target frozen, after the dump."""
        if os.fstat(self.left_out).st_size % _LEFT_OUT.size:
            return False
        copied = {self._seen[pid]: spans for pid, spans in self._copied.items()}
        for seen, spans in self._left_out_of().items():
            missing = difference(spans, copied.get(seen, []))
            if missing:
                self._log.warning(
                    "pages were left out of a dump that are not copied", pid=seen, missing=missing[:4]
                )
                return False
        return True

    def close(self) -> None:
        """Have changes noted no more; the copies stay. Doing it twice is no error."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        wait_or_kill(process, _ENDS_WITHIN)
        process.stdout.close()

    def discard(self) -> None:
        """Remove the copies."""
        self.close()
        if self.left_out >= 0:
            os.close(self.left_out)
            self.left_out = -1
        shutil.rmtree(self._directory, ignore_errors=True)

    def merge(self, images: Path) -> Mapping[str, ScatteredPages]:
        """Make the small images whole; where the pages of those page files are that are not, by name, until ``discard``.

        Raises:
            OSError: the disk is full.
            ObjectCorrupt: CRIU left an image that cannot be read.
        """
        left_out = self._left_out_of()
        found: dict[str, ScatteredPages] = {}
        for pid, copies in self._copies.items():
            spans = left_out.get(self._seen[pid])
            if spans:
                pages = self._directory / f"{pid}.pages"
                name, whole = _merge(images, self._inside[pid], spans, copies, pages)
                found[name] = whole
        return found


def _pids(pid: int) -> list[int]:
    """Its numbers, from our PID namespace to its own."""
    return [int(word) for word in (procfs.status_field(pid, "NSpid") or str(pid)).split()]


def _merge(
    images: Path, pid: int, left_out: Sequence[Span], copies: Sequence[Placed], pages: Path
) -> tuple[str, ScatteredPages]:
    pagemap = images / f"pagemap-{pid}.img"
    head_body, *bodies = messages(pagemap.name, pagemap.read_bytes())
    head = decode(pagemap.name, head_body, pb.PagemapHead)
    own = [decode(pagemap.name, body, pb.PagemapEntry) for body in bodies]
    dumped, slot = [], 0
    for entry in own:
        first = entry.vaddr // _PAGE
        dumped.append((first, first + entry.nr_pages, slot, entry.flags))
        slot += entry.nr_pages
    # A page that is in both was dumped all the same; the dump is at least as new.
    missing = difference(left_out, union((first, end) for first, end, _, _ in dumped))
    lazy = lazy_spans(read_first(images / f"mm-{pid}.img", pb.MmEntry).vmas)
    pieces = [(first, end, 0, slot, flags) for first, end, slot, flags in dumped]
    for flags, spans in ((_PRESENT | _LAZY, _both(missing, lazy)), (_PRESENT, difference(missing, lazy))):
        pieces += [(piece.first, piece.end, 1, piece.slot, flags) for piece in placed(spans, copies)]
    pieces.sort()
    whole = images / f"pages-{head.pages_id}.img"
    write_entries(pagemap, [head, *_entries([(first, end, flags) for first, end, _, _, flags in pieces])])
    runs = [(file, slot, end - first) for first, end, file, slot, _ in pieces]
    return whole.name, scattered_in((whole, pages), runs, pages.with_suffix(".short"))


def _both(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    return difference(spans, difference(spans, others))


def _entries(pieces: Sequence[tuple[int, int, int]]) -> Iterator[pb.PagemapEntry]:
    at = 0
    while at < len(pieces):
        first, end, flags = pieces[at]
        at += 1
        while at < len(pieces) and pieces[at][0] == end and pieces[at][2] == flags:
            end = pieces[at][1]
            at += 1
        for begin in range(first, end, _ENTRY_MOST):
            count = min(_ENTRY_MOST, end - begin)
            yield pb.PagemapEntry(
                vaddr=begin * _PAGE, compat_nr_pages=0, in_parent=False, flags=flags, nr_pages=count
            )


def scattered_in(files: tuple[Path, Path], runs: Sequence[_FileRun], short: Path) -> ScatteredPages:
    """Pages of two files where they lie; those of short runs are copied to a file of their own.

    Raises:
        OSError: a file ends before its last page, or the disk is full.
    """
    least = max(_MAPPED_LEAST, sum(count for _, _, count in runs) // _MAPPED_MOST)
    found: list[_FileRun] = []
    copied = 0
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(path.open("rb")) for path in files]
        to = stack.enter_context(short.open("wb"))
        sizes = [os.fstat(file.fileno()).st_size for file in opened]
        for file, slot, count in _joined(runs):
            # Whoever reads what is mapped behind the end of a file is killed.
            if (slot + count) * _PAGE > sizes[file]:
                raise OSError(f"a copied page is missing in {files[file]}")
            if count >= least:
                found.append((file, slot, count))
                continue
            copy_bytes(opened[file].fileno(), to.fileno(), slot * _PAGE, count * _PAGE)
            found.append((len(files), copied, count))
            copied += count
    return ScatteredPages((*files, short), tuple(_joined(found)))


def _joined(runs: Sequence[_FileRun]) -> list[_FileRun]:
    """Runs that follow each other in a file made one."""
    found: list[_FileRun] = []
    for file, slot, count in runs:
        if found and found[-1][0] == file and found[-1][1] + found[-1][2] == slot:
            found[-1] = (file, found[-1][1], found[-1][2] + count)
        else:
            found.append((file, slot, count))
    return found
