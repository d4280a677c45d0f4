"""A template of CRIU for one commit: a process that holds its memory, and is forked for each branch instead of starting CRIU.

So the commit's pages are read once, and all branches share them until they write: memory that is private and anonymous, as it was.
What a CRIU of it inherits, and what it is asked, is as of any other (``CriuProcess``). How it works is specified in
``native/template_shim.c``. Its memory comes from page files that were checked, and it restores nothing but that commit.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.empty_parents import lay_empty_parent, read_heads
from relive.checkpoint.host_files import open_host_files
from relive.checkpoint.kernel_cache import place_kerndat
from relive.errors import RestoreFailed
from relive.images.template_regions import Region, read_regions

__all__ = ["CriuTemplate", "ForkedCriu"]

_READY_WITHIN = 60.0  # [s] to read all pages
_FORKED_WITHIN = 10.0  # [s]
_JOINED_WITHIN = 5.0  # [s] to join control groups; with that the template itself answers
_ANSWER_MOST = 32  # [bytes]
_MOST_FILES = 200  # mapped, for each of which two processes have a descriptor open for a moment


class ForkedCriu:
    """A CRIU that was forked; has what ``CriuProcess`` uses of ``subprocess.Popen``."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self._line = line
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """How it ended: as ``subprocess`` tells it; killed where nobody knows.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        if self._status is None:
            readable, _, _ = select.select([self._line], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired("criu", timeout or 0.0)
            text = self._line.recv(_ANSWER_MOST)  # nothing: the template has ended, and killed it
            self._status = int(text.removeprefix(b"e ")) if text else -9
            self._line.close()  # now it is reaped
        return self._status

    def kill(self) -> None:
        """End it."""
        if self._status is None:
            self._status = -9
            self._line.close()


class CriuTemplate:
    """May be used by processes that were forked after it was made; ends when all of them have closed it.

    Attributes:
        unshared: why each branch has the pages of mapped files for itself; None: it has not.
    """

    def __init__(self, tools: CriuTools, images: Path, *, on_host: bool) -> None:
        """Start it, and read all pages.

        Args:
            images: of the commit, as a branch of it was made from: checked, and limited to what a branch may do.
            on_host: its processes' files may be the host's, so mapped ones are mapped for all branches that have them unchanged.

        Raises:
            RestoreFailed: it did not begin; for want of memory, mostly.
            ObjectCorrupt, OSError: the images cannot be read.
        """
        self.unshared: OSError | None = None
        self._heads = read_heads(images)
        place_kerndat(tools.directory)
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as stack, contextlib.ExitStack() as failed:
            failed.callback(self._orders.close)
            stack.enter_context(theirs)
            regions = read_regions(images)
            mapped = self._open_mapped_files(regions, stack) if on_host else {}
            regions = [one for one in regions if one.file is None or one.file.name in mapped]
            files = _open_page_files(images, regions, stack)
            table = os.memfd_create("regions", os.MFD_CLOEXEC)
            stack.callback(os.close, table)
            os.write(table, _table(regions, files, mapped).encode())
            os.lseek(table, 0, os.SEEK_SET)
            environment = tools.environment(restores=True)
            environment["LD_PRELOAD"] = (
                f"{tools.template_shim}:{environment['LD_PRELOAD']}"  # before pages_shim
            )
            environment["LD_BIND_NOW"] = "1"  # once, not in each that is forked
            environment["RELIVE_TEMPLATE"] = f"{theirs.fileno()}:{table}"
            self._process = subprocess.Popen(
                [str(tools.criu), "swrk", "0"],
                pass_fds=[theirs.fileno(), table, *files.values(), *mapped.values()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            failed.pop_all()
        self._orders.settimeout(_READY_WITHIN)
        with contextlib.suppress(OSError):
            if self._orders.recv(1) == b"r":
                return
        self.close()
        raise RestoreFailed(
            "the memory of the commit could not be shared",
            cause="the process that was to hold it ended",
            remedy="for want of memory, mostly: see `dmesg`",
        )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let it end; to be called by who made it. Doing it twice is no error."""
        self._orders.close()
        try:
            self._process.wait(_FORKED_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _open_mapped_files(self, regions: Iterable[Region], stack: contextlib.ExitStack) -> dict[str, int]:
        """Descriptors by path, closed with the stack, of those files whose changed pages are most; none where they cannot be had.

        Why not is in ``unshared`` then.
        """
        pages: Counter[str] = Counter()
        for region in regions:
            if region.file is not None:
                pages[region.file.name] += sum(size for _, size, _ in region.runs)
        try:
            found = open_host_files(name for name, _ in pages.most_common(_MOST_FILES))
        except OSError as error:
            self.unshared = error
            return {}
        for descriptor in found.values():
            stack.callback(os.close, descriptor)
        return found

    def lay_beside(self, images: Path) -> None:
        """Have CRIU fill all private memory before the restorer runs."""
        lay_empty_parent(images, self._heads)

    def fork(self, first: int, groups: Sequence[Path], keep: Sequence[int]) -> ForkedCriu:
        """A CRIU in the namespaces of process 1 with this pid, whose next number it has; the calling thread is in them already.

        Args:
            groups: directories of control groups in which it is from its first moment on, where the kernel can do that.
            keep: descriptors that it has under the same numbers; on the first of them it converses.

        Raises:
            OSError: it could not be made, or did not get into its groups in time.
        """
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(_FORKED_WITHIN)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(theirs)
                handle = _closed(stack, os.pidfd_open(first))
                root = _closed(stack, os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                rights = array.array("i", [theirs.fileno(), handle, root, *keep])
                numbers = " ".join(map(str, [int(_JOINED_WITHIN * 1000), *keep]))
                text = b"\0".join([numbers.encode(), *map(os.fsencode, groups)])
                self._orders.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            answer = int(line.recv(_ANSWER_MOST) or b"-3")  # ESRCH: it has ended
            if answer == -errno.ETIMEDOUT:
                raise TimeoutError(errno.ETIMEDOUT, _late(groups))
            if answer < 0:
                raise OSError(-answer, f"the template of CRIU: {os.strerror(-answer)}")
        except BaseException:
            line.close()
            raise
        line.settimeout(None)
        return ForkedCriu(answer, line)


def _late(groups: Sequence[Path]) -> str:
    names = ", ".join(map(str, groups))
    return f"it did not join its control groups ({names}) within {_JOINED_WITHIN:g} s: is one frozen?"


def _closed(stack: contextlib.ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _open_page_files(images: Path, regions: Iterable[Region], stack: contextlib.ExitStack) -> dict[int, int]:
    """A descriptor for each N of pages-N.img, which is closed with the stack."""
    return {
        pages: _closed(stack, os.open(images / f"pages-{pages}.img", os.O_RDONLY | os.O_CLOEXEC))
        for pages in sorted({region.pages for region in regions})
    }


def _table(regions: Iterable[Region], files: Mapping[int, int], mapped: Mapping[str, int]) -> str:
    lines: list[str] = []
    for region in regions:
        file = f"{mapped[region.file.name]} {region.file.offset}" if region.file is not None else "-1 0"
        lines.append(
            f"region {region.pages} {files[region.pages]} {region.protection} {region.flags} {region.size} {file}"
        )
        lines += [f"run {offset} {size} {inside}" for offset, size, inside in region.runs]
    return "".join(f"{line}\n" for line in lines)
