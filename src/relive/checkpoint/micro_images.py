"""CRIU's images of a tree of processes at a later moment, made of those of its base and of what has been copied since.

What is written anew: registers and masks of threads, mappings and memory (``micro_process``), shared memory, positions and sizes
of open files, times of files without a name, connections, timers, and the clocks. All else is as in the base;
``micro_fingerprint`` has seen to it that it is the same.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from relive.checkpoint.micro_connections import BaseConnections, FollowedConnections, OpenDescriptors
from relive.checkpoint.micro_fingerprint import pipe_contents
from relive.checkpoint.micro_ghosts import BaseGhosts
from relive.checkpoint.micro_process import BaseProcess, MicroProcess
from relive.checkpoint.micro_record import FullCommitNeeded, GhostFacts, MicroRecord, Seen, TimerSetting
from relive.checkpoint.micro_shared import BaseShared
from relive.checkpoint.micro_timers import set_timerfd
from relive.checkpoint.micro_words import naming_process
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import (
    decode,
    first_message,
    followed_entries,
    image_like,
    image_of,
    messages,
    read_entries,
    read_first,
)
from relive.store.held_images import HeldImages
from relive.store.pages.page_pool import PagePool, PooledPages

__all__ = ["MicroBase", "MicroCommit"]

_PAGE = 4096
_NS = 1_000_000_000
_IN_PIPES = "pipes-data.img"
_STREAMS = "tcp-stream-"
_CLOCKS = "timens-0.img"
_WITH_STATE = ("packetsk", "netlinksk", "tunfile")


class MicroCommit(NamedTuple):
    """What has been decided on; nothing is written as yet.

    Attributes:
        processes: in the order of the tree.
        ghosts: images of files without a name.
    """

    processes: list[MicroProcess]
    connections: FollowedConnections
    ghosts: dict[str, bytes]

    @property
    def copied_pages(self) -> int:
        """So many were not in the base as they are now."""
        return sum(one.copied_pages for one in self.processes)

    @property
    def taken(self) -> tuple[int, int]:
        """(wall time, monotonic time) [ns] when all stood still."""
        first = self.processes[0].record
        return first.wall_ns, first.monotonic_ns

    @property
    def pause_ns(self) -> int:
        """So long stood still the one that did so the longest."""
        return max(one.record.pause_ns for one in self.processes)


class MicroBase:
    """The last commit of a tree, on top of which the next may be taken.

    Args:
        images: of a commit by CRIU, whole.
        seen: each process as it was seen from outside while CRIU held it, the root first.
        pool: for their pages and those of the commits on top of it.

    Raises:
        FullCommitNeeded: no commit can be taken on top of it.
        OSError: they cannot be read.
        ObjectCorrupt: an image is damaged.
    """

    def __init__(self, images: Path, seen: Sequence[Seen], pool: PagePool) -> None:
        tree = {one.pid: one for one in read_entries(images / "pstree.img", pb.PstreeEntry)}
        if tree.keys() != {one.inside for one in seen}:
            raise FullCommitNeeded("CRIU has saved other processes than were seen")
        self._refuse_unfollowed(images)
        waiting = {number: data for one in seen for number, data in pipe_contents(one).items()}
        if waiting != _saved_in_pipes(images / _IN_PIPES):
            raise FullCommitNeeded("what lies in a pipe changed while CRIU saved it")
        self._small = {
            path.name: path.read_bytes()
            for path in images.iterdir()
            if path.suffix == ".img" and not path.name.startswith("pages-")
        }
        members = {one.pid for one in seen}
        self._processes: list[BaseProcess] = []
        for one in seen:
            with naming_process(one):
                process = BaseProcess(images, self._small, tree[one.inside], one, members, pool)
            self._processes.append(process)
        self._refuse_shared()
        self._shared = BaseShared(self._small, seen, pool)
        known = {one.pages_name for one in self._processes} | self._shared.pages_names
        # Of memory files that cannot change (``check_trackable``).
        self._others = {
            path.name: _pooled(pool, path, np.arange(path.stat().st_size // _PAGE))
            for path in images.glob("pages-*.img")
            if path.name not in known
        }
        streams = {
            name: read_first(images / name, pb.TcpStreamEntry)
            for name in self._small
            if name.startswith(_STREAMS)
        }
        self._ghosts = BaseGhosts(self._small, self._nameless([one.seen for one in self._processes]))
        self._connections = BaseConnections(
            [OpenDescriptors(one.seen, one.descriptors()) for one in self._processes], self._files, streams
        )

    def _refuse_unfollowed(self, images: Path) -> None:
        for path in images.iterdir():
            if path.name.startswith(_WITH_STATE):
                raise FullCommitNeeded(f"CRIU has saved {path.name}")

    def _refuse_shared(self) -> None:
        ids = [one.ids for one in self._processes]
        for kind in ("vm_id", "files_id", "sighand_id"):
            if len({getattr(one, kind) for one in ids}) != len(ids):
                raise FullCommitNeeded(
                    "two of its processes share memory, descriptors or signal actions as threads do"
                )

    def decide(self, records: Sequence[MicroRecord], root: Path) -> MicroCommit:
        """See whether a commit can be made of records.

        Args:
            records: in the order of what was seen.
            root: the root directory that the processes see.

        Raises:
            FullCommitNeeded: it cannot, and never with this base.
        """
        seen = [record.seen for record in records]
        processes: list[MicroProcess] = []
        for one, record in zip(self._processes, records, strict=True):
            with naming_process(record.seen):
                processes.append(one.decide(record))
        positions = {
            process.file_of(number): place
            for process, one in zip(self._processes, seen, strict=True)
            for number, place in one.positions.items()
        }
        timers = {
            process.file_of(number): setting
            for process, one in zip(self._processes, seen, strict=True)
            for number, setting in one.timers.items()
        }
        self._shared.check(records)
        _check_sizes(self._sizes, positions.keys(), root)
        files = self._placed_files(positions, timers)
        connections = self._connections.follow(records, files)
        return MicroCommit(processes, connections, self._ghosts.follow(self._nameless(seen)))

    def _nameless(self, seen: Iterable[Seen]) -> dict[int, GhostFacts]:
        """Open files without a name, by id."""
        return {
            process.file_of(number): facts
            for process, one in zip(self._processes, seen, strict=True)
            for number, facts in one.ghosts.items()
        }

    @cached_property
    def _files(self) -> list[pb.FileEntry]:
        """As in the base; nobody changes them."""
        bodies = messages("files.img", self._small["files.img"])
        return [decode("files.img", body, pb.FileEntry) for body in bodies]

    @cached_property
    def _encoded(self) -> dict[int, bytes]:
        """Each of ``_files``, by ``id``: most are in every commit as they are in the base."""
        return {id(one): one.SerializeToString() for one in self._files}

    @cached_property
    def _moving(self) -> list[int]:
        """Where in ``_files`` those are that may be otherwise in the next commit: regular ones, epoll instances, and timerfds."""
        return [
            at
            for at, one in enumerate(self._files)
            if one.HasField("reg") or one.HasField("epfd") or one.HasField("tfd")
        ]

    @cached_property
    def _sizes(self) -> list[tuple[int, str, int]]:
        """Of the regular files their ids, paths, and sizes [bytes] where CRIU has noted these."""
        regular = ((one.id, one.reg) for one in self._files if one.HasField("reg"))
        return [(number, one.name, one.size) for number, one in regular if one.HasField("size")]

    def files_of(self, commit: MicroCommit) -> HeldImages:
        """The images that say which connections there are and where each stands."""
        followed = commit.connections
        encoded = self._encoded
        bodies = (encoded.get(id(one)) or one.SerializeToString() for one in followed.files)
        small = {"files.img": image_of(self._small["files.img"], bodies)}
        for process, descriptors in zip(self._processes, followed.descriptors, strict=True):
            small[process.fdinfo] = self._like(process.fdinfo, descriptors)
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
        shared, pages = self._shared.images_of([one.record for one in commit.processes])
        small |= files.small | commit.ghosts | shared
        pages |= self._others
        for process, one in zip(self._processes, commit.processes, strict=True):
            small |= process.small_of(one)
            pages[process.pages_name] = process.take_pages(one)
        if _CLOCKS in small:
            small[_CLOCKS] = self._clocks(commit.processes[0].record)
        return HeldImages(small, pages)

    def _like(self, name: str, entries: Iterable[Message]) -> bytes:
        return image_like(self._small[name], entries)

    def _placed_files(
        self, positions: Mapping[int, tuple[int, int]], timers: Mapping[int, TimerSetting]
    ) -> list[pb.FileEntry]:
        """The base's, with positions and sizes of regular ones and settings of timerfds as of now.

        What epoll instances watch may be changed in them.
        """
        placed = list(self._files)
        for at in self._moving:
            entry = placed[at]
            position = positions.get(entry.id) if entry.HasField("reg") else None
            if position is not None or not entry.HasField("reg"):
                placed[at] = own = pb.FileEntry()
                own.CopyFrom(entry)
                if entry.HasField("tfd"):
                    set_timerfd(own.tfd, timers[entry.id])
                if position is not None:
                    own.reg.pos, size = position
                    if own.reg.HasField("size"):
                        own.reg.size = size
        return placed

    def _clocks(self, record: MicroRecord) -> bytes:
        clocks = decode(_CLOCKS, first_message(_CLOCKS, self._small[_CLOCKS]), pb.TimensEntry)
        for clock, ns in ((clocks.monotonic, record.monotonic_ns), (clocks.boottime, record.boot_ns)):
            clock.tv_sec, clock.tv_nsec = divmod(ns, _NS)
        return self._like(_CLOCKS, [clocks])


def _check_sizes(sizes: Iterable[tuple[int, str, int]], opened: Container[int], root: Path) -> None:
    """Files that are mapped or run, as CRIU will check them when it restores; open ones are noted anew."""
    try:
        top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FullCommitNeeded("its root directory cannot be opened") from error
    try:
        for number, name, size in sizes:
            if number not in opened:
                try:
                    now = os.stat(name.lstrip("/"), dir_fd=top).st_size
                except OSError:
                    now = -1
                if now != size:
                    raise FullCommitNeeded(f"{name} has changed")
    finally:
        os.close(top)


def _pooled(pool: PagePool, path: Path, places: npt.NDArray[np.int64]) -> PooledPages:
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
