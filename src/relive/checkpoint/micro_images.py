"""CRIU's images of a process at a later moment, made of those of its base and of what has been copied since.

What is written anew: registers and masks of its threads, its mappings and memory, positions and sizes of its open files, and
the clocks. All else is as in the base; ``micro_fingerprint`` has seen to it that it is the same. Only of one process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from relive.checkpoint.micro_connections import BaseConnections, FollowedConnections
from relive.checkpoint.micro_fingerprint import (
    check_hidden,
    check_same,
    check_trackable,
    new_mappings,
    pipe_contents,
)
from relive.checkpoint.micro_record import CopiedRun, FullCommitNeeded, MicroRecord, RecordedThread, Seen
from relive.checkpoint.page_files import lazy_spans
from relive.checkpoint.page_runs import Span
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import (
    decode,
    followed_entries,
    image_like,
    messages,
    read_entries,
    read_first,
)
from relive.images.pagemap import read_pagemap
from relive.store.held_images import HeldImages
from relive.store.pages.page_pool import PagePool, PooledPages

__all__ = ["MicroBase", "MicroCommit"]

_PAGE = 4096
_ENTRY_MOST = 256  # [pages] as CRIU's own
_PRESENT, _LAZY = 4, 2
_RESTARTED, _RESTART_BLOCK = (-512, -513, -514), -516
_EINTR = -4
_TILES = 3 << 17  # AMX, which CRIU does not save
_NS = 1_000_000_000
_REGISTERS = (  # of user_regs_struct, by the names of CRIU's image
    "r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss fs_base gs_base ds es fs gs"
).split()
_IN_PIPES = "pipes-data.img"
_STREAMS = "tcp-stream-"
_CLOCKS = "timens-0.img"
_FX = struct.Struct("<HHHHQQII")
_WITH_STATE = (
    "ghost-file-",
    "remap-fpath",
    "packetsk",
    "netlinksk",
    "tunfile",
)

Numbers = npt.NDArray[np.int64]


class _Pages(NamedTuple):
    """Page numbers in ascending order, and what they hold."""

    numbers: Numbers
    held: PooledPages


class MicroCommit(NamedTuple):
    """What has been decided on; nothing is written as yet.

    Attributes:
        pages: all pages of the commit, by address; slots: where each lies in the pool as in the base; offsets: where in the record
            [bytes] those lie that were copied, -1 of the others.
    """

    record: MicroRecord
    pages: Numbers
    slots: Numbers
    offsets: Numbers
    mappings: list[pb.VmaEntry]
    end_of_heap: int
    cores: dict[int, pb.CoreEntry]
    connections: FollowedConnections

    @property
    def copied_pages(self) -> int:
        """So many were not in the base as they are now."""
        return int(np.count_nonzero(self.offsets >= 0))


class MicroBase:
    """The last commit of a process, on top of which the next may be taken.

    Args:
        images: of a commit by CRIU, whole.
        seen: the process as it was seen from outside while CRIU held it.
        pool: for its pages and those of the commits on top of it.

    Raises:
        FullCommitNeeded: no commit can be taken on top of it.
        OSError: they cannot be read.
        ObjectCorrupt: an image is damaged.
    """

    def __init__(self, images: Path, seen: Seen, pool: PagePool) -> None:
        check_trackable(seen)
        tree = read_entries(images / "pstree.img", pb.PstreeEntry)
        if len(tree) != 1:
            raise FullCommitNeeded("it is more than one process")
        self._pid = tree[0].pid
        self._refuse_unfollowed(images)
        self._seen = seen
        if pipe_contents(seen) != _saved_in_pipes(images / _IN_PIPES):
            raise FullCommitNeeded("what lies in a pipe changed while CRIU saved it")
        self._small = {
            path.name: path.read_bytes()
            for path in images.iterdir()
            if path.suffix == ".img" and not path.name.startswith("pages-")
        }
        self._cores = {tid: read_first(images / f"core-{tid}.img", pb.CoreEntry) for tid in tree[0].threads}
        self._memory = read_first(images / f"mm-{self._pid}.img", pb.MmEntry)
        name = self._pagemap
        number, runs = read_pagemap(name, self._small[name])
        self._pages_name = f"pages-{number}.img"
        self._pool = pool
        numbers, places = _by_address(runs)
        self._held = _Pages(numbers, _pooled(pool, images / self._pages_name, places))
        # Of memory files that cannot change (``check_trackable``).
        self._others = {
            path.name: _pooled(pool, path, np.arange(path.stat().st_size // _PAGE))
            for path in images.glob("pages-*.img")
            if path.name != self._pages_name
        }
        new_mappings(seen, seen, self._memory.vmas)  # each must be found in CRIU's images
        streams = {
            name: read_first(images / name, pb.TcpStreamEntry)
            for name in self._small
            if name.startswith(_STREAMS)
        }
        self._connections = BaseConnections(seen, self._files(), self._descriptors(), streams)

    @property
    def _pagemap(self) -> str:
        return f"pagemap-{self._pid}.img"

    def _refuse_unfollowed(self, images: Path) -> None:
        for path in images.iterdir():
            if path.name.startswith(_WITH_STATE):
                raise FullCommitNeeded(f"CRIU has saved {path.name}")

    def decide(self, record: MicroRecord, root: Path) -> MicroCommit:
        """See whether a commit can be made of a record.

        Args:
            root: the root directory that the process sees.

        Raises:
            FullCommitNeeded: it cannot, and never with this base.
        """
        seen = record.seen
        check_same(self._seen, seen)
        check_trackable(seen)
        end_of_heap = check_hidden(seen, self._cores, self._memory)
        mappings = new_mappings(self._seen, seen, self._memory.vmas)
        if {one.tid for one in record.threads} != set(self._cores):
            raise FullCommitNeeded("its threads have changed")
        if any(struct.unpack_from("<Q", one.xstate, 512)[0] & _TILES for one in record.threads):
            raise FullCommitNeeded("a thread uses AMX")
        self._check_sizes(seen, root)
        special = [
            (one.start // _PAGE, one.end // _PAGE) for one in seen.mappings if one.name.startswith("[v")
        ]
        private = [(one.start // _PAGE, one.end // _PAGE) for one in seen.mappings if "p" in one.rights]
        pages, slots, offsets = self._find_pages(record, special, private)
        cores = {one.tid: _core_of(self._cores[one.tid], one, record.xsave) for one in record.threads}
        connections = self._connections.follow(record, self._placed_files(seen))
        return MicroCommit(record, pages, slots, offsets, mappings, end_of_heap, cores, connections)

    def _check_sizes(self, seen: Seen, root: Path) -> None:
        """Files that are mapped or run, as CRIU will check them when it restores; open ones are noted anew."""
        opened = {self._regular_of(number) for number in seen.positions}
        for number, name, expected in self._sized_files:
            if number not in opened:
                try:
                    size = os.stat(f"{root}{name}").st_size
                except OSError:
                    size = -1
                if size != expected:
                    raise FullCommitNeeded(f"{name} has changed")

    def _files(self) -> list[pb.FileEntry]:
        bodies = messages("files.img", self._small["files.img"])
        return [decode("files.img", body, pb.FileEntry) for body in bodies]

    @property
    def _fdinfo(self) -> str:
        return next(name for name in self._small if name.startswith("fdinfo-"))

    def _descriptors(self) -> list[pb.FdinfoEntry]:
        name = self._fdinfo
        return [decode(name, body, pb.FdinfoEntry) for body in messages(name, self._small[name])]

    def _regular_of(self, number: int) -> int:
        """The id of the file that a descriptor stands for."""
        if number not in self._file_ids:
            raise FullCommitNeeded(f"descriptor {number} is not in the base")
        return self._file_ids[number]

    @cached_property
    def _file_ids(self) -> dict[int, int]:
        return {entry.fd: entry.id for entry in self._descriptors()}

    @cached_property
    def _sized_files(self) -> list[tuple[int, str, int]]:
        """Of the regular files of the base: id, name, size."""
        regular = [entry for entry in self._files() if entry.HasField("reg") and entry.reg.HasField("size")]
        return [(entry.id, entry.reg.name, entry.reg.size) for entry in regular]

    def _find_pages(
        self, record: MicroRecord, special: Sequence[Span], private: Sequence[Span]
    ) -> tuple[Numbers, Numbers, Numbers]:
        """The pages of the commit, of each the slot and the offset (``MicroCommit``); the kernel's own are those of the base."""
        present = _numbers(record.present)
        present = present[_within(present, private) & ~_within(present, special)]
        kept = self._held.numbers[_within(self._held.numbers, special)]
        pages = _each_once(present, kept)
        offsets = np.full(len(pages), -1, np.int64)
        slots = self._slots_of(pages)
        at, copied = _copied_at(record.copied, pages)
        slots[at], offsets[at] = -1, copied
        missing = pages[(slots < 0) & (offsets < 0)]
        if len(missing):
            raise FullCommitNeeded(
                f"there is no copy of {len(missing)} pages, the first at {int(missing[0]) * _PAGE:x}"
            )
        return pages, slots, offsets

    def _slots_of(self, pages: Numbers) -> Numbers:
        """Of each page its slot in the base, -1 where it has none."""
        slots = np.full(len(pages), -1, np.int64)
        if len(self._held.numbers):
            at = np.searchsorted(self._held.numbers, pages).clip(max=len(self._held.numbers) - 1)
            is_held = self._held.numbers[at] == pages
            slots[is_held] = self._held.held.slots[at[is_held]]
        return slots

    def files_of(self, commit: MicroCommit) -> HeldImages:
        """The images that say which connections there are and where each stands."""
        followed = commit.connections
        small = {
            "files.img": self._like("files.img", followed.files),
            self._fdinfo: self._like(self._fdinfo, followed.descriptors),
        }
        # One for each connection, while requests are held back.
        for name, (entry, waiting) in followed.streams.items():
            small[name] = self._like(followed.patterns[name], [entry]) + waiting
        return HeldImages(small)

    def images_of(self, commit: MicroCommit, files: HeldImages) -> HeldImages:
        """All images, those of ``files_of`` among them; afterwards this is the base of the next one.

        Raises:
            OSError: the disk is full; this is then of no use any more.
        """
        small = {name: data for name, data in self._small.items() if not name.startswith(_STREAMS)}
        small |= files.small
        for tid, core in commit.cores.items():
            small[f"core-{tid}.img"] = self._like(f"core-{tid}.img", [core])
        memory = pb.MmEntry()
        memory.CopyFrom(self._memory)
        del memory.vmas[:]
        memory.vmas.extend(commit.mappings)
        memory.mm_brk = commit.end_of_heap
        small[f"mm-{self._pid}.img"] = self._like(f"mm-{self._pid}.img", [memory])
        if _CLOCKS in small:
            small[_CLOCKS] = self._clocks(commit.record)
        small[self._pagemap] = self._pagemap_of(commit)
        self._held = _Pages(commit.pages, self._take_pages(commit))
        return HeldImages(small, {**self._others, self._pages_name: self._held.held})

    def _like(self, name: str, entries: Iterable[Message]) -> bytes:
        return image_like(self._small[name], entries)

    def _placed_files(self, seen: Seen) -> list[pb.FileEntry]:
        """The base's, with the positions and sizes of regular ones as of now."""
        regular = {self._regular_of(number): place for number, place in seen.positions.items()}
        entries = self._files()
        for entry in entries:
            if entry.id in regular and entry.HasField("reg"):
                entry.reg.pos, size = regular[entry.id]
                if entry.reg.HasField("size"):
                    entry.reg.size = size
        return entries

    def _clocks(self, record: MicroRecord) -> bytes:
        clocks = decode(_CLOCKS, messages(_CLOCKS, self._small[_CLOCKS])[0], pb.TimensEntry)
        for clock, ns in ((clocks.monotonic, record.monotonic_ns), (clocks.boottime, record.boot_ns)):
            clock.tv_sec, clock.tv_nsec = divmod(ns, _NS)
        return self._like(_CLOCKS, [clocks])

    def _pagemap_of(self, commit: MicroCommit) -> bytes:
        lazy = _within(commit.pages, lazy_spans(commit.mappings))
        flags = np.where(lazy, _PRESENT | _LAZY, _PRESENT)
        head_body, *_ = messages(self._pagemap, self._small[self._pagemap])
        entries = [
            pb.PagemapEntry(
                vaddr=int(commit.pages[first]) * _PAGE,
                compat_nr_pages=0,
                in_parent=False,
                flags=int(flags[first]),
                nr_pages=end - first,
            )
            for first, end in _runs(commit.pages, flags)
        ]
        return self._like(self._pagemap, [decode(self._pagemap, head_body, pb.PagemapHead), *entries])

    def _take_pages(self, commit: MicroCommit) -> PooledPages:
        is_copied = commit.offsets >= 0
        slots = commit.slots.copy()
        with commit.record.path.open("rb") as copied:
            before = self._slots_of(commit.pages[is_copied])
            slots[is_copied] = self._pool.add_changed(copied.fileno(), commit.offsets[is_copied], before)
        return self._pool.hold(slots)


def _pooled(pool: PagePool, path: Path, places: Numbers) -> PooledPages:
    """Pages of a file, which begin at these places in it [pages]."""
    with path.open("rb") as file:
        return pool.hold(pool.add(file.fileno(), places * _PAGE))


def _saved_in_pipes(path: Path) -> dict[int, bytes]:
    found = {}
    if path.exists():
        whole = path.read_bytes()
        for entry, behind in followed_entries(path.name, whole, pb.PipeDataEntry, lambda one: one.bytes):
            if behind:
                found[entry.pipe_id] = behind
    return found


def _by_address(runs: Iterable[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    numbers = _numbers((first, first + count) for first, count in runs)
    order = np.argsort(numbers, kind="stable")
    return numbers[order], order.astype(np.int64)


def _numbers(spans: Iterable[Span]) -> Numbers:
    parts = [np.arange(first, end, dtype=np.int64) for first, end in spans]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _copied_at(runs: Sequence[CopiedRun], pages: Numbers) -> tuple[Numbers, Numbers]:
    """Indices of those pages that were to be copied, and of each the offset [bytes], -1 where it could not be read.

    Of a page that comes twice the later counts: so numpy assigns them.
    """
    rows = [(run.first, run.end, -1 if run.offset is None else run.offset) for run in runs]
    first, end, offset = np.array(rows, np.int64).reshape(-1, 3).T
    begins, ends = np.searchsorted(pages, first), np.searchsorted(pages, end)
    counts = ends - begins
    of_run = np.repeat(np.arange(len(rows)), counts)
    at = np.arange(len(of_run)) - (np.cumsum(counts) - counts)[of_run] + begins[of_run]
    offsets = (pages[at] - first[of_run]) * _PAGE + offset[of_run]
    offsets[offset[of_run] < 0] = -1
    return at, offsets


def _each_once(numbers: Numbers, others: Numbers) -> Numbers:
    """All of both, in ascending order. They are nearly in order, which numpy's ``union1d`` makes nothing of."""
    found = np.sort(np.concatenate([numbers, others]), kind="stable")
    is_first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return found[is_first]


def _within(pages: Numbers, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Of each page whether it is in one of the spans, which do not overlap and are in ascending order."""
    if not spans:
        return np.zeros(len(pages), np.bool_)
    bounds = np.array(spans, np.int64)
    at = np.searchsorted(bounds[:, 0], pages, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (pages < bounds[at.clip(min=0), 1])
    return inside


def _runs(pages: Numbers, flags: Numbers) -> list[tuple[int, int]]:
    """Indices of runs of pages that follow each other, are alike, and are not longer than CRIU's."""
    if not len(pages):
        return []
    breaks = np.flatnonzero((np.diff(pages) != 1) | (np.diff(flags) != 0)) + 1
    bounds = [0, *breaks.tolist(), len(pages)]
    return [
        (begin, min(begin + _ENTRY_MOST, end))
        for first, end in pairwise(bounds)
        for begin in range(first, end, _ENTRY_MOST)
    ]


def _core_of(base: pb.CoreEntry, thread: RecordedThread, offsets: Sequence[tuple[int, int]]) -> pb.CoreEntry:
    core = pb.CoreEntry()
    core.CopyFrom(base)
    values = dict(zip(_REGISTERS, thread.registers, strict=True))
    if _signed(values["orig_ax"]) >= 0:  # as CRIU's own dump does it (compel_get_task_regs)
        result = _signed(values["ax"])
        if result in _RESTARTED:
            values["ax"], values["ip"] = values["orig_ax"], values["ip"] - 2
        elif result == _RESTART_BLOCK:
            values["ax"] = _EINTR & (1 << 64) - 1
    for name, value in values.items():
        setattr(core.thread_info.gpregs, name, value)
    _set_floating_point(core.thread_info.fpregs, thread.xstate, offsets)
    core.thread_core.blk_sigset = thread.mask
    if core.thread_core.HasField("rseq_entry"):
        # It is inside none (``native/micro/stopping.c``).
        core.thread_core.rseq_entry.ClearField("rseq_cs_pointer")
    if core.HasField("tc"):
        core.tc.blk_sigset = thread.mask
    return core


def _set_floating_point(
    target: pb.UserX86FpregsEntry, state: bytes, offsets: Sequence[tuple[int, int]]
) -> None:
    (
        target.cwd,
        target.swd,
        target.twd,
        target.fop,
        target.rip,
        target.rdp,
        target.mxcsr,
        target.mxcsr_mask,
    ) = _FX.unpack_from(state)
    target.st_space[:] = struct.unpack_from("<32I", state, 32)
    target.xmm_space[:] = struct.unpack_from("<64I", state, 160)
    if not target.HasField("xsave"):
        return
    (target.xsave.xstate_bv,) = struct.unpack_from("<Q", state, 512)
    for component, field, letter, size in (
        (2, target.xsave.ymmh_space, "I", 4),
        (3, target.xsave.bndreg_state, "Q", 8),
        (4, target.xsave.bndcsr_state, "Q", 8),
        (5, target.xsave.opmask_reg, "Q", 8),
        (6, target.xsave.zmm_upper, "Q", 8),
        (7, target.xsave.hi16_zmm, "Q", 8),
        (9, target.xsave.pkru, "I", 4),
    ):
        if len(field):
            offset, room = offsets[component]
            count = len(field)
            if offset + count * size > len(state) or count * size > room:
                raise FullCommitNeeded("the registers are of another form than CRIU's")
            field[:] = struct.unpack_from(f"<{count}{letter}", state, offset)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
