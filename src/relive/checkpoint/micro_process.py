"""One process of a commit on top of another: which pages it has, its registers and its mappings, and CRIU's images of these."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import Message

from relive.checkpoint.micro_fingerprint import (
    check_hidden,
    check_nameless,
    check_same,
    check_trackable,
    nameless_files,
    new_mappings,
)
from relive.checkpoint.micro_layout import Layout
from relive.checkpoint.micro_pages import (
    PAGE,
    PRESENT,
    Numbers,
    copied_runs,
    each_once,
    pagemap_like,
    pages_by_address,
    pages_by_spans,
    pages_within,
    slots_of,
)
from relive.checkpoint.micro_record import (
    CopiedRuns,
    FullCommitNeeded,
    MicroRecord,
    RecordedThread,
    Seen,
    spans_of,
)
from relive.checkpoint.micro_timers import set_task_timers
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, first_message, image_like, messages, read_first
from relive.images.pagemap import read_pagemap
from relive.store.pages.page_pool import PagePool, PooledPages

__all__ = ["BaseProcess", "MicroProcess"]

_LAZY = 2
_RESTARTED, _RESTART_BLOCK = (-512, -513, -514), -516
_EINTR = -4
_TILES = 3 << 17  # AMX, which CRIU does not save
_REGISTERS = (  # of user_regs_struct, by the names of CRIU's image
    "r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss fs_base gs_base ds es fs gs"
).split()
_FX = struct.Struct("<HHHHQQII")


class _Pages(NamedTuple):
    """Page numbers in ascending order, and what they hold.

    Attributes:
        present, layout: of which they are; None for those that CRIU saved.
    """

    numbers: Numbers
    held: PooledPages
    present: bytes | None = None
    layout: Layout | None = None


class MicroProcess(NamedTuple):
    """What has been decided on of one process; nothing is written as yet.

    Attributes:
        pages: all pages of the commit, by address; slots: where each lies in the pool as in the base; offsets: where in the record
            [bytes] those lie that were copied, -1 of the others.
    """

    record: MicroRecord
    pages: Numbers
    slots: Numbers
    offsets: Numbers
    layout: Layout
    end_of_heap: int
    cores: dict[int, bytes]

    @property
    def copied_pages(self) -> int:
        """So many were not in the base as they are now."""
        return int(np.count_nonzero(self.offsets >= 0))


class BaseProcess:
    """As it was in the last commit.

    Args:
        images: of a commit by CRIU, whole; small: those of them that hold no pages, by name.
        entry: of the tree.
        seen: as it was seen from outside while CRIU held it.
        members: all processes of the tree.
        pool: for its pages and those of the commits on top of it.

    Raises:
        FullCommitNeeded: no commit can be taken on top of it.
        OSError: they cannot be read.
        ObjectCorrupt: an image is damaged.
    """

    def __init__(
        self,
        images: Path,
        small: Mapping[str, bytes],
        entry: pb.PstreeEntry,
        seen: Seen,
        members: Collection[int],
        pool: PagePool,
    ) -> None:
        check_trackable(seen, members)
        self.pid = entry.pid
        self.seen = seen
        self._small = small
        self._members = members
        self.ids = decode("ids", first_message("ids", small[f"ids-{self.pid}.img"]), pb.TaskKobjIdsEntry)
        self._cores = {tid: read_first(images / f"core-{tid}.img", pb.CoreEntry) for tid in entry.threads}
        self._memory = read_first(images / f"mm-{self.pid}.img", pb.MmEntry)
        name = self._pagemap
        number, runs = read_pagemap(name, small[name])
        self.pages_name = f"pages-{number}.img"
        self._pool = pool
        numbers, places = pages_by_address(runs)
        with (images / self.pages_name).open("rb") as file:
            self._held = _Pages(numbers, pool.hold(pool.add(file.fileno(), places * PAGE)))
        self._nameless = nameless_files(seen)
        self._layout: Layout | None = None
        self._hidden: tuple[list[str], int] | None = None  # what was told last, and the break that it tells
        # Images, and what they were made of: of the same the same is made again.
        self._core_images: dict[int, tuple[RecordedThread, pb.TaskTimersEntry, bytes]] = {}
        self._memory_image: tuple[Layout, int, bytes] | None = None
        self._pagemap_image: tuple[Layout, Numbers, bytes] | None = None
        new_mappings(seen, seen, self._memory.vmas)  # each must be found in CRIU's images

    @property
    def _pagemap(self) -> str:
        return f"pagemap-{self.pid}.img"

    @property
    def fdinfo(self) -> str:
        """The image of its descriptors."""
        return f"fdinfo-{self.ids.files_id}.img"

    def descriptors(self) -> list[pb.FdinfoEntry]:
        """As in the base."""
        name = self.fdinfo
        return [decode(name, body, pb.FdinfoEntry) for body in messages(name, self._small[name])]

    def file_of(self, number: int) -> int:
        """The id of the file that a descriptor stands for."""
        if number not in self._file_ids:
            raise FullCommitNeeded(f"descriptor {number} is not in the base")
        return self._file_ids[number]

    @cached_property
    def _file_ids(self) -> dict[int, int]:
        return {entry.fd: entry.id for entry in self.descriptors()}

    def decide(self, record: MicroRecord) -> MicroProcess:
        """See whether a commit can be made of a record.

        Raises:
            FullCommitNeeded: it cannot, and never with this base.
        """
        seen = record.seen
        check_same(self.seen, seen)  # so all that ``check_trackable`` finds in lines is as it was
        check_nameless(self._nameless, seen)
        layout = self._layout
        if layout is None or not layout.is_of(seen):
            layout = Layout.of(self.seen, seen, self._memory.vmas)
        end_of_heap = self._check_hidden(seen)
        if {one.tid for one in record.threads} != set(self._cores):
            raise FullCommitNeeded("its threads have changed")
        if any(struct.unpack_from("<Q", one.xstate, 512)[0] & _TILES for one in record.threads):
            raise FullCommitNeeded("a thread uses AMX")
        pages, slots, offsets = self._find_pages(record, layout)
        timers = self._timers_of(seen)
        cores = {one.tid: self._core_of(one, record.xsave, timers) for one in record.threads}
        self._layout = layout
        return MicroProcess(record, pages, slots, offsets, layout, end_of_heap, cores)

    def _check_hidden(self, seen: Seen) -> int:
        """``check_hidden``; what was told in the commit before need not be checked once more, since the base stays the same."""
        if self._hidden is None or self._hidden[0] != seen.hidden:
            self._hidden = seen.hidden, check_hidden(seen, self._cores, self._memory)
        return self._hidden[1]

    def _find_pages(self, record: MicroRecord, layout: Layout) -> tuple[Numbers, Numbers, Numbers]:
        """The pages of the commit, of each the slot and the offset (``MicroCommit``); the kernel's own are those of the base."""
        held = self._held
        if held.layout is layout and held.present == record.present:
            pages, slots = held.numbers, held.held.slots.copy()
        else:
            present = pages_by_spans(spans_of(record.present), layout.private, layout.special)
            kept = held.numbers[pages_within(held.numbers, layout.special)]
            pages = each_once(present, kept)
            slots = self._slots_of(pages)
        offsets = np.full(len(pages), -1, np.int64)
        at, copied = _copied_at(record.copied, pages)
        slots[at], offsets[at] = -1, copied
        missing = pages[(slots < 0) & (offsets < 0)]
        if len(missing):
            raise FullCommitNeeded(
                f"there is no copy of {len(missing)} pages, the first at {int(missing[0]) * PAGE:x}"
            )
        return pages, slots, offsets

    def _slots_of(self, pages: Numbers) -> Numbers:
        """Of each page its slot in the base, -1 where it has none."""
        return slots_of(pages, self._held.numbers, self._held.held.slots)

    def small_of(self, commit: MicroProcess) -> dict[str, bytes]:
        """Its images but for those of descriptors and pages, by name."""
        small = {f"core-{tid}.img": core for tid, core in commit.cores.items()}
        small[f"mm-{self.pid}.img"] = self._memory_of(commit)
        small[self._pagemap] = self._pagemap_of(commit)
        return small

    def _timers_of(self, seen: Seen) -> pb.TaskTimersEntry:
        timers = pb.TaskTimersEntry()
        timers.CopyFrom(next(core.tc.timers for core in self._cores.values() if core.HasField("tc")))
        set_task_timers(timers, seen.hidden)
        return timers

    def _core_of(
        self, thread: RecordedThread, offsets: Sequence[tuple[int, int]], timers: pb.TaskTimersEntry
    ) -> bytes:
        """Its image; most threads have not run since the commit before."""
        made = self._core_images.get(thread.tid)
        if made is None or made[0] != thread or made[1] != timers:
            core = _core_of(self._cores[thread.tid], thread, offsets)
            if core.HasField("tc"):
                core.tc.timers.CopyFrom(timers)
            image = self._like(f"core-{thread.tid}.img", [core])
            self._core_images[thread.tid] = made = thread, timers, image
        return made[2]

    def _memory_of(self, commit: MicroProcess) -> bytes:
        made = self._memory_image
        if made is None or made[0] is not commit.layout or made[1] != commit.end_of_heap:
            memory = pb.MmEntry()
            memory.CopyFrom(self._memory)
            del memory.vmas[:]
            memory.vmas.extend(commit.layout.entries)
            memory.mm_brk = commit.end_of_heap
            data = self._like(f"mm-{self.pid}.img", [memory])
            self._memory_image = made = commit.layout, commit.end_of_heap, data
        return made[2]

    def take_pages(self, commit: MicroProcess) -> PooledPages:
        """Its pages; they are those of the base from now on.

        Raises:
            OSError: the disk is full; this is then of no use any more.
        """
        is_copied = commit.offsets >= 0
        slots = commit.slots.copy()
        with commit.record.path.open("rb") as copied:
            before = self._slots_of(commit.pages[is_copied])
            slots[is_copied] = self._pool.add_changed(copied.fileno(), commit.offsets[is_copied], before)
        held = self._pool.hold(slots)
        self._held = _Pages(commit.pages, held, commit.record.present, commit.layout)
        return self._held.held

    def _like(self, name: str, entries: Iterable[Message]) -> bytes:
        return image_like(self._small[name], entries)

    def _pagemap_of(self, commit: MicroProcess) -> bytes:
        made = self._pagemap_image
        if made is None or made[0] is not commit.layout or made[1] is not commit.pages:
            lazy = pages_within(commit.pages, commit.layout.lazy)
            flags = np.where(lazy, PRESENT | _LAZY, PRESENT)
            data = pagemap_like(self._pagemap, self._small[self._pagemap], commit.pages, flags)
            self._pagemap_image = made = commit.layout, commit.pages, data
        return made[2]


def _copied_at(blocks: Sequence[CopiedRuns], pages: Numbers) -> tuple[Numbers, Numbers]:
    """Indices of those pages that were to be copied, and of each the offset [bytes], -1 where it could not be read.

    Of a page that comes twice the later counts: so numpy assigns them.
    """
    first, end, offset = copied_runs(blocks)
    begins, ends = np.searchsorted(pages, first), np.searchsorted(pages, end)
    counts = ends - begins
    of_run = np.repeat(np.arange(len(first)), counts)
    at = np.arange(len(of_run)) - (np.cumsum(counts) - counts)[of_run] + begins[of_run]
    offsets = (pages[at] - first[of_run]) * PAGE + offset[of_run]
    offsets[offset[of_run] < 0] = -1
    return at, offsets


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
    core.thread_core.ClearField("signals_p")  # none is pending now (``check_same``)
    if core.thread_core.HasField("rseq_entry"):
        # It is inside none (``native/micro/stopping.c``).
        core.thread_core.rseq_entry.ClearField("rseq_cs_pointer")
    if core.HasField("tc"):
        core.tc.blk_sigset = thread.mask
        core.tc.ClearField("signals_s")
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
