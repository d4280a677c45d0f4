"""Branches: listing, entering and stopping them. They are made from commits in ``restoring``, which takes longer to import.

A branch's directory below ``$RELIVE_HOME/branches`` holds ``state.json``, ``io/`` with its standard output and error,
``status`` (the raw wait status of its root once that has ended), and its private layers. Its mounts and network live and
die with its process 1, so nothing of it survives a crash but this directory, which ``stop`` removes.

A branch of a replay or of a debugger is *owned*: it ends with the process that restored it, and ``sweep`` removes what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from relive.config import Settings
from relive.errors import BranchUnknown, DiskFilled, MemoryLost, RestoreFailed
from relive.kernel import procfs
from relive.kernel.atomic_write import Durability, replace_file
from relive.kernel.capabilities import WITHHELD
from relive.kernel.claims import claimed
from relive.kernel.pidfds import has_ended, open_process, send_signal
from relive.kernel.sandboxcalls import SANDBOX_FILTER
from relive.model.branch import BranchFacts, MemoryState
from relive.model.commit import CommitId
from relive.sandbox.cgroups import Groups, sweep_groups
from relive.sandbox.endpoints import OpenedEndpoints
from relive.sandbox.lazy.pager import await_pager
from relive.sandbox.lazy.state import memory_lost, pager_killed, read_memory
from relive.sandbox.limits import OVERHEAD
from relive.sandbox.ownership import Ownership
from relive.sandbox.seal import Seal, read_seal
from relive.sandbox.unfinished import sweep_unfinished

__all__ = [
    "Branch",
    "branched_commits",
    "find_branch",
    "group_prefix",
    "list_branches",
    "name_commit",
    "sweep",
]

_STATE = "state.json"
_COMMIT = "commit"  # there from the beginning, as the state is not
_END_LIMIT = 10.0  # [s]
_EVERY_CAPABILITY = (1 << 64) - 1


@dataclass(slots=True)
class Branch:
    """A branch on this host.

    Attributes:
        peers: of a branch just made, the forged client ends of its inward connections, by their local port.
        ends: of a branch just made, what stands for the outside.
        ownership: of a branch that lives no longer than this process; None: that of another, or nobody's.
    """

    directory: Path
    tools: Path
    facts: BranchFacts
    peers: dict[int, int] = field(default_factory=dict)
    ends: OpenedEndpoints = field(default_factory=OpenedEndpoints)
    ownership: Ownership | None = None

    @property
    def is_alive(self) -> bool:
        """Its process 1 runs."""
        return procfs.is_same_process(self.facts.init, self.facts.init_started)

    @property
    def wait_status(self) -> int | None:
        """Raw wait status of the restored root, None while it runs."""
        words = self._status()
        return int(words[0]) if words else None

    @property
    def groups(self) -> Groups:
        """Its control groups."""
        return Groups(tuple(Path(group) for group in self.facts.groups))

    @property
    def memory(self) -> MemoryState | None:
        """How far its memory is there; None when it was not restored lazily."""
        return read_memory(self.directory)

    @property
    def memory_lost(self) -> MemoryLost | None:
        """Why it was stopped, or is just being stopped, if that is because the rest of its memory cannot come."""
        memory = self.memory
        if memory is None:
            return None
        if memory.failure is not None:
            return memory_lost(memory.failure)
        if "memory" in self._status()[1:]:  # nobody of the page daemon was left to say why
            return memory_lost(pager_killed())
        return None

    @property
    def cut_short(self) -> RestoreFailed | None:
        """Why it was ended before its time, which is not its service's doing: as ``memory_lost``, or the disk got short."""
        if "disk" in self._status()[1:]:
            return DiskFilled(
                f"the branch {self.facts.id} was ended",
                cause="the disk that it writes to was filling up: by it, by another branch, or by something else",
                remedy=f"`relive stop {self.facts.id}` frees what it wrote; the setting branch_disk says how much may go",
            )
        return self.memory_lost

    @property
    def stubs_ended(self) -> bool:
        """It had a process that answers its service, and that is gone."""
        facts = self.facts
        return facts.stubs is not None and not procfs.is_same_process(facts.stubs, facts.stubs_started)

    def _status(self) -> list[str]:
        """What process 1 wrote down: the raw wait status, and "memory" or "disk" if it ended the branch for want of it."""
        try:
            return (self.directory / "status").read_text().split()
        except FileNotFoundError:
            return []

    def seal(self) -> Seal:
        """The proof that nothing left; raises BranchUnknown when the branch is gone."""
        try:
            return read_seal(self.facts.init)
        except OSError:
            raise BranchUnknown(
                f"the branch {self.facts.id} has ended", remedy="`relive ps --all` lists what was"
            ) from None

    @property
    def rings(self) -> Path:
        """Directory of the rings of its Python processes."""
        return self.directory / "rings"

    def have_memory_of_capsule(self) -> None:
        """From now on it may use what its capsule could, where its use leaves that.

        What restored it needs no more. And the rings of a capsule's Python processes are memory of the capsule, those of a branch
        are files of its host.
        """
        rings = 0
        for ring in self.rings.glob("*.ring"):
            with contextlib.suppress(FileNotFoundError):
                rings += ring.stat().st_size
        self.groups.lower_memory(OVERHEAD + rings)

    def log(self, stream: str) -> Path:
        """The file with its "stdout" or "stderr"."""
        return self.directory / "io" / f"{stream}.log"

    def command_inside(self, command: list[str]) -> list[str]:
        """A command line that runs ``command`` within the branch, with no more rights than the service has there.

        ``native/enter.c`` says how, and what its exit status means.

        Raises:
            BranchUnknown: the branch has ended.
        """
        facts = self.facts
        # The service's, which may be within those of process 1; its own first process cannot leave them.
        has_root = procfs.is_same_process(facts.root, facts.root_started)
        target = (facts.root, facts.root_started) if has_root else (facts.init, facts.init_started)
        groups = [word for group in facts.groups for word in ("--group", group)]
        environment = ["--environment"] if facts.is_container else []
        rights = [f"{self._allowed():x}", SANDBOX_FILTER.hex()]
        enter = [str(self.tools / "relive-enter"), *groups, *environment]
        return [*enter, *map(str, target), *rights, *command]

    def _allowed(self) -> int:
        """The capabilities that its service could still get, a bit for each."""
        facts, own = self.facts, None
        if procfs.is_same_process(facts.root, facts.root_started):
            own = procfs.status_field(facts.root, "CapBnd")
        if own is None and facts.is_container:
            raise BranchUnknown(
                f"the branch {facts.id} has ended", remedy="`relive logs` still shows what it said"
            )
        most = int(own, 16) if own is not None else _EVERY_CAPABILITY
        return most & ~sum(1 << number for number in WITHHELD.values())

    def save(self) -> None:
        """Write ``state.json``."""
        state = self.facts.model_dump_json(indent=2).encode()
        replace_file(self.directory / _STATE, state, durability=Durability.NONE)

    def outlive_caller(self) -> None:
        """Let it live on after this process."""
        self.facts = self.facts.model_copy(update={"is_owned": False})
        self.save()
        if self.ownership is not None:
            self.ownership.let_live()
            self.ownership = None

    def unpublish(self) -> None:
        """Give its ports of this host back, which are free then; raises OSError when the branch was stopped."""
        for publication in self.facts.publications:
            _end_helper(publication.forwarder, publication.forwarder_started, within=_END_LIMIT)
        self.facts = self.facts.model_copy(update={"publications": []})
        self.save()

    def stop(self) -> None:
        """End it and remove all that was its own. Stopping twice is no error."""
        for descriptor in self.peers.values():
            os.close(descriptor)
        self.peers.clear()
        self.ends.close()
        for publication in self.facts.publications:
            _end_helper(publication.forwarder, publication.forwarder_started)
        if self.facts.stubs is not None:
            _end_helper(self.facts.stubs, self.facts.stubs_started)
        _kill_and_wait(self.facts.init, self.facts.init_started)
        if self.facts.pager is not None:
            # With process 1 it ends by itself; nobody may write here any more when the directory is removed.
            await_pager(self.facts.pager, self.facts.pager_started)
        self.groups.remove()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.ownership is not None:
            self.ownership.close()
            self.ownership = None


def _end_helper(pid: int, started: int, *, within: float = 0.0) -> None:
    """Ask a process beside the branch to end, and give it that long [s].

    It may have ended with the branch long ago, and its number be a stranger's.
    """
    handle = open_process(pid, started)
    if handle is not None:
        send_signal(handle, signal.SIGTERM)
        has_ended(handle, within)
        os.close(handle)


def _kill_and_wait(pid: int, started: int) -> None:
    handle = open_process(pid, started)
    if handle is None:
        return
    try:
        send_signal(handle, signal.SIGKILL)
        has_ended(handle, _END_LIMIT)  # with process 1 its whole PID namespace has
        with contextlib.suppress(ChildProcessError):  # it is the child of whoever restored it
            os.waitpid(pid, os.WNOHANG)
    finally:
        os.close(handle)


def list_branches(settings: Settings) -> list[Branch]:
    """All branches of this host, oldest first, also those whose processes have ended."""
    found = []
    if not settings.branches.is_dir():
        return []
    for directory in settings.branches.iterdir():
        with contextlib.suppress(OSError, ValueError):
            found.append(Branch(directory, settings.tools_path, _read_facts(directory)))
    return sorted(found, key=lambda branch: branch.facts.created_wall_ns)


def name_commit(directory: Path, commit: CommitId) -> None:
    """Say of which commit a branch is being made in this directory, before anything of the commit is read."""
    (directory / _COMMIT).write_text(commit)


def branched_commits(settings: Settings) -> set[CommitId]:
    """The commits of which branches live, as `relive rollback` goes back to them, or are being made.

    One that was being made when its maker died counts until it is swept.
    """
    # First: one that gets its state meanwhile is among the living.
    unfinished = set(_commits_of_unfinished(settings.branches))
    return unfinished | {branch.facts.commit for branch in list_branches(settings) if branch.is_alive}


def _commits_of_unfinished(branches: Path) -> Iterator[CommitId]:
    if not branches.is_dir():
        return
    for directory in branches.iterdir():
        with contextlib.suppress(OSError):  # no branch, or one that has ended meanwhile
            if not (directory / _STATE).exists():
                yield CommitId((directory / _COMMIT).read_text())


def _read_facts(directory: Path) -> BranchFacts:
    return BranchFacts.model_validate_json((directory / _STATE).read_bytes())


def sweep(settings: Settings) -> None:
    """Clear away what was left by processes that died: branches that were being made, and those that only they had.

    Called by every command that has to do with branches; what another command, or another user, has is let be.
    """
    if not settings.branches.is_dir():
        return
    sweep_unfinished(settings.branches, _STATE)
    sweep_groups(group_prefix(settings), settings.branches)
    for branch in list_branches(settings):
        if not branch.facts.is_owned:
            continue
        with contextlib.suppress(OSError), claimed(branch.directory, at_once=True):
            if _read_facts(branch.directory).is_owned:  # its owner may have let it live meanwhile
                branch.stop()


def group_prefix(settings: Settings) -> str:
    """How the names of control groups begin that belong to branches of this RELIVE_HOME."""
    return f"{settings.branches.stat().st_ino:x}-"


def find_branch(settings: Settings, text: str) -> Branch:
    """The branch of an id or a unique beginning of one; raises BranchUnknown."""
    fits = [branch for branch in list_branches(settings) if branch.facts.id.startswith(text)]
    if len(fits) != 1 or not text:
        cause = "several ids begin so" if len(fits) > 1 else None
        raise BranchUnknown(f"{text!r} names no branch", cause=cause, remedy="`relive ps` lists branches")
    return fits[0]
