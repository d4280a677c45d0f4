"""Reading the state of a commit: ``CommitState`` from its images, and what stands in memory (arguments, environment, mutexes)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, messages
from relive.incidents.report.masking import Mask
from relive.inspection.address_space import (
    AddressSpace,
    MappedFiles,
    PageRuns,
    key_of_shared,
    permissions,
    plain_text,
    region_name,
)
from relive.inspection.descriptors import CommittedFiles
from relive.inspection.queues import read_queues
from relive.inspection.state import CommitState, ProcessState, Region, ThreadState
from relive.inspection.system_calls import call_text
from relive.inspection.waiting import Stand, file_locks, waiting_threads
from relive.model.commit import CommitId, Manifest
from relive.store.pages.commit_memory import CommitMemory
from relive.store.pages.size import PAGE

__all__ = ["SmallImages", "learn_secrets", "read_environment", "read_state"]

_MOST_TEXT = 1 << 20  # [bytes] of arguments or environment; the kernel allows 2 MB of both together
_STATES = {1: "running", 2: "dead", 3: "stopped", 6: "zombie"}  # TASK_* of CRIU
_REGISTERS = (
    *("ip", "sp", "bp", "flags", "ax", "bx", "cx", "dx", "si", "di"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "orig_ax", "fs_base", "gs_base"),
)
Entry = TypeVar("Entry", bound=Message)


@dataclass(frozen=True, slots=True)
class SmallImages:
    """The images without pages, decoded when they are asked for; raises ObjectCorrupt where one is damaged."""

    small: Mapping[str, bytes]

    def all(self, name: str, kind: type[Entry]) -> list[Entry]:
        """The messages of an image; none where the commit has no such image."""
        data = self.small.get(name)
        return [] if data is None else [decode(name, body, kind) for body in messages(name, data)]

    def first(self, name: str, kind: type[Entry]) -> Entry | None:
        """The first message of an image."""
        return next(iter(self.all(name, kind)), None)


@dataclass(slots=True)
class _Process:
    """A process while it is read; ``memory_of``: the process whose address space it has, mostly itself."""

    entry: pb.PstreeEntry
    core: pb.CoreEntry
    mm: pb.MmEntry | None
    space: AddressSpace
    table: Sequence[pb.FdinfoEntry]
    threads: list[tuple[int, pb.CoreEntry]] = field(default_factory=list)


def read_state(memory: CommitMemory, commit: CommitId, manifest: Manifest, mask: Mask) -> CommitState:
    """All of a commit.

    Args:
        mask: learns the secrets of all processes, and takes them out of what is told.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: an image or a pack is damaged or sealed.
    """
    images = SmallImages(memory.small)
    processes = _processes(images, memory)
    files = images.all("files.img", pb.FileEntry)
    mapped = MappedFiles.of(files, images.all("memfd.img", pb.MemfdInodeEntry))
    open_files = CommittedFiles(
        files,
        mapped,
        read_queues(memory.small),
        [(one.entry.pid, one.table) for one in processes],
    )
    path_of = _path_finder(processes, open_files)
    locks = file_locks(images.all("filelocks.img", pb.FileLockEntry), path_of)
    stands = [
        Stand(one.entry.pid, tid, core.thread_info.gpregs, one.space.read)
        for one in processes
        for tid, core in one.threads
        if core.HasField("thread_info")
    ]
    sharers = _sharers(processes, mapped)
    shared = sum(pages for key, file in memory.files.items() if "shmem" in key for _, pages in file.runs)
    for one in processes:
        _learn(one, mask)
    described = [_described(images, memory, one, open_files, sharers, mask) for one in processes]
    state = CommitState(
        commit=commit,
        target=manifest.target.name,
        taken_wall_ns=manifest.taken_wall_ns,
        processes=[],
        locks=locks,
        waiting=waiting_threads(stands, locks, path_of),
        shared=shared * PAGE,
    )
    # Descriptors and locks name paths and addresses; what stands in regions is the kernel's words and files of programs.
    return mask.model(state).model_copy(update={"processes": described})


def learn_secrets(memory: CommitMemory, mask: Mask) -> None:
    """Have a mask know the secrets in the arguments and the environment of a commit's processes; raises as ``read_state``."""
    for one in _processes(SmallImages(memory.small), memory):
        _learn(one, mask)


def read_environment(memory: CommitMemory) -> dict[str, str]:
    """With which the first process of a commit was started, its secrets among it; empty where that is not known.

    Raises:
        As ``read_state``.
    """
    first = next(iter(_processes(SmallImages(memory.small), memory)), None)
    return _environment(first) if first is not None else {}


def _processes(images: SmallImages, memory: CommitMemory) -> list[_Process]:
    found, owners = [], dict[int, int]()  # by the number of an address space, which process's images hold it
    for entry in images.all("pstree.img", pb.PstreeEntry):
        core = images.first(f"core-{entry.pid}.img", pb.CoreEntry) or pb.CoreEntry()
        ids = images.first(f"ids-{entry.pid}.img", pb.TaskKobjIdsEntry)
        owner = owners.setdefault(ids.vm_id, entry.pid) if ids is not None else entry.pid
        table = images.all(f"fdinfo-{ids.files_id}.img", pb.FdinfoEntry) if ids is not None else []
        mm = images.first(f"mm-{owner}.img", pb.MmEntry)
        process = _Process(entry, core, mm, AddressSpace(memory, owner), table)
        for tid in entry.threads:
            thread = images.first(f"core-{tid}.img", pb.CoreEntry)
            if thread is not None:
                process.threads.append((tid, thread))
        found.append(process)
    return found


def _path_finder(processes: Sequence[_Process], files: CommittedFiles) -> Callable[[int, int], str]:
    known = {
        (one.entry.pid, entry.fd): files.mapped.names.get(entry.id, "")
        for one in processes
        for entry in one.table
    }
    return lambda pid, fd: known.get((pid, fd), "")


def _sharers(processes: Sequence[_Process], mapped: MappedFiles) -> dict[int, list[int]]:
    """By the number of a shared memory, the processes that map it."""
    found: dict[int, list[int]] = defaultdict(list)
    for one in processes:
        for vma in one.mm.vmas if one.mm is not None else ():
            number = mapped.shared_number(vma)
            if number is not None and one.entry.pid not in found[number]:
                found[number].append(one.entry.pid)
    return found


def _learn(process: _Process, mask: Mask) -> None:
    mask.learn_environment(_environment(process))
    mask.learn_command(_command(process))


def _described(
    images: SmallImages,
    memory: CommitMemory,
    process: _Process,
    files: CommittedFiles,
    sharers: Mapping[int, list[int]],
    mask: Mask,
) -> ProcessState:
    entry, core, mm = process.entry, process.core, process.mm
    fs = images.first(f"fs-{entry.pid}.img", pb.FsEntry)
    regions = _regions(memory, process, files, sharers)
    names = mask.named
    return ProcessState(
        pid=entry.pid,
        parent=entry.ppid,
        group=entry.pgid,
        session=entry.sid,
        name=plain_text(core.tc.comm),
        state=_STATES.get(core.tc.task_state, str(core.tc.task_state)),
        uid=core.thread_core.creds.uid,
        command=mask.words(_command(process)),
        environment={name: names(name, value) for name, value in _environment(process).items()},
        executable=files.mapped.names.get(mm.exe_file_id, "") if mm is not None else "",
        directory=files.mapped.names.get(fs.cwd_id, "") if fs is not None else "",
        threads=[_thread(tid, one) for tid, one in process.threads],
        descriptors=[mask.model(one) for one in files.of_process(entry.pid, process.table)],
        regions=regions,
        mapped=sum(one.size for one in regions),
        stored=sum(pages for _, pages, _ in process.space.runs.placed) * PAGE,
    )


def _thread(tid: int, core: pb.CoreEntry) -> ThreadState:
    has_registers = core.HasField("thread_info")
    registers = core.thread_info.gpregs
    return ThreadState(
        tid=tid,
        name=plain_text(core.thread_core.comm or core.tc.comm),
        call=call_text(registers) if has_registers else None,
        registers={name: hex(getattr(registers, name)) for name in _REGISTERS} if has_registers else {},
    )


def _regions(
    memory: CommitMemory, process: _Process, files: CommittedFiles, sharers: Mapping[int, list[int]]
) -> list[Region]:
    if process.mm is None:
        return []
    found = []
    for vma in process.mm.vmas:
        runs, begin, end, others = process.space.runs, vma.start, vma.end, list[int]()
        number = files.mapped.shared_number(vma)
        if number is not None:
            runs = PageRuns.of(memory.files.get(key_of_shared(number)))
            begin, end = vma.pgoff, vma.pgoff + vma.end - vma.start
            others = [pid for pid in sharers.get(number, ()) if pid != process.entry.pid]
        found.append(
            Region(
                start=hex(vma.start),
                end=hex(vma.end),
                permissions=permissions(vma),
                name=region_name(vma, process.mm, files.mapped.names),
                size=vma.end - vma.start,
                stored=runs.within(begin, end) * PAGE,
                shared_with=others,
            )
        )
    return found


def _words(process: _Process, begin: int, end: int) -> list[bytes]:
    if not 0 < end - begin <= _MOST_TEXT:
        return []
    data = process.space.read(begin, end - begin)
    return data.rstrip(b"\0").split(b"\0") if data else []


def _command(process: _Process) -> list[str]:
    mm = process.mm
    words = _words(process, mm.mm_arg_start, mm.mm_arg_end) if mm is not None else []
    return [word.decode("utf-8", "backslashreplace") for word in words]


def _environment(process: _Process) -> dict[str, str]:
    mm = process.mm
    words = _words(process, mm.mm_env_start, mm.mm_env_end) if mm is not None else []
    pairs = (word.decode("utf-8", "backslashreplace").partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals}
