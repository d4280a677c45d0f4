"""Branches: making them from commits, listing, entering and stopping them.

A branch's directory below ``$RELIVE_HOME/branches`` holds ``state.json``, ``io/`` with its standard output and error,
``status`` (the raw wait status of its root once that has ended), and its private layers. Its mounts and network live and
die with its process 1, so nothing of it survives a crash but this directory, which ``stop`` removes.

A branch of a replay or of a debugger is *owned*: it ends with the process that restored it, and ``sweep`` removes what is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.config import Settings
from relive.engine.criu import CriuTools
from relive.errors import (
    BranchUnknown,
    MemoryLost,
    PermissionMissing,
    ReliveError,
    RestoreFailed,
)
from relive.images import criu_images_pb2 as pb
from relive.images.credentials import WITHHELD, limit_capabilities
from relive.images.families import limit_sockets
from relive.images.imagefile import read_entries
from relive.images.sockets import (
    TcpConnection,
    bound_addresses,
    read_connections,
    read_files,
    read_outside_names,
)
from relive.kernel import procfs
from relive.kernel.mounts import read_mounts
from relive.kernel.userfault import check_userfault
from relive.model.branch import BranchFacts, Clock, MemoryState
from relive.model.commit import CommitId, LayerKind, Manifest, TargetKind
from relive.record.rings import RingMode
from relive.sandbox.builder import BranchBuilder, BranchPlan, Built
from relive.sandbox.container.ground import ContainerGround
from relive.sandbox.container.making import container_ground, lay_out_large_images, limit_container
from relive.sandbox.ground import Ground, HostGround
from relive.sandbox.inside import command_in
from relive.sandbox.lazy.pager import Pager, await_pager
from relive.sandbox.lazy.state import memory_lost, pager_killed, read_memory
from relive.sandbox.outside import Ends, Outside
from relive.sandbox.ownership import Ownership
from relive.sandbox.rings import make_rings
from relive.sandbox.rootfs import CoveredPoint, plan_points
from relive.sandbox.seal import Seal, read_seal
from relive.sandbox.unfinished import claimed, new_place, sweep_unfinished
from relive.store import Store

__all__ = ["Branch", "find_branch", "list_branches", "restore", "sweep"]

_STATE = "state.json"


@dataclass(slots=True)
class Branch:
    """A branch on this host.

    Attributes:
        peers: of a branch just made, the forged client ends of its inward connections, by their local port.
        ends: of a branch just made, what stands for the outside.
        ownership: of a branch that lives no longer than this process; None: that of another, or nobody's.
    """

    directory: Path
    facts: BranchFacts
    peers: dict[int, int] = field(default_factory=dict)
    ends: Ends = field(default_factory=Ends)
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
    def stubs_ended(self) -> bool:
        """It had a process that answers its service, and that is gone."""
        facts = self.facts
        return facts.stubs is not None and not procfs.is_same_process(facts.stubs, facts.stubs_started)

    def _status(self) -> list[str]:
        """What process 1 wrote down: the raw wait status, and "memory" if it ended the branch for want of it."""
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

    def log(self, stream: str) -> Path:
        """The file with its "stdout" or "stderr"."""
        return self.directory / "io" / f"{stream}.log"

    def command_inside(self, command: list[str]) -> list[str]:
        """A command line that runs ``command`` within the branch, with no more capabilities than the service has there."""
        if self.facts.is_container:
            return command_in(self.facts.root, command)
        enter = [f"--target={self.facts.root}", "--mount", "--pid", "--net", "--ipc", "--uts"]
        withheld = ",".join(f"-cap_{number}" for number in WITHHELD.values())
        limit = ["setpriv", f"--bounding-set={withheld}", "--"]
        # No --wd: it would be opened on the host's side of the mount namespace, and stay there; without it that of the branch
        # is its root.
        return ["nsenter", *enter, "--", *limit, *command]

    def save(self) -> None:
        """Write ``state.json``."""
        fresh = self.directory / f".{_STATE}"
        fresh.write_text(self.facts.model_dump_json(indent=2))
        fresh.replace(self.directory / _STATE)

    def keep(self) -> None:
        """Let it live on after this process."""
        self.facts = self.facts.model_copy(update={"is_owned": False})
        self.save()
        if self.ownership is not None:
            self.ownership.let_live()
            self.ownership = None

    def stop(self) -> None:
        """End it and remove all that was its own. Stopping twice is no error."""
        for descriptor in self.peers.values():
            os.close(descriptor)
        self.peers.clear()
        self.ends.close()
        for publication in self.facts.publications:
            with contextlib.suppress(ProcessLookupError):
                os.kill(publication.forwarder, signal.SIGTERM)
        if self.facts.stubs is not None and not self.stubs_ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.facts.stubs, signal.SIGTERM)
        if self.is_alive:
            _kill_and_wait(self.facts.init)
        if self.facts.pager is not None:
            # With process 1 it ends by itself; nobody may write here any more when the directory is removed.
            await_pager(self.facts.pager, self.facts.pager_started)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.ownership is not None:
            self.ownership.close()
            self.ownership = None


def _kill_and_wait(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # The pidfd becomes readable when the process is gone, and with process 1 its whole PID namespace.
        select.select([handle], [], [], 10.0)
        with contextlib.suppress(ChildProcessError):  # it is the child of whoever restored it
            os.waitpid(pid, os.WNOHANG)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def list_branches(settings: Settings) -> list[Branch]:
    """All branches of this host, oldest first, also those whose processes have ended."""
    found = []
    if not settings.branches.is_dir():
        return []
    for directory in settings.branches.iterdir():
        with contextlib.suppress(OSError, ValueError):
            found.append(Branch(directory, _read_facts(directory)))
    return sorted(found, key=lambda branch: branch.facts.created_wall_ns)


def _read_facts(directory: Path) -> BranchFacts:
    return BranchFacts.model_validate_json((directory / _STATE).read_bytes())


def sweep(settings: Settings) -> None:
    """Clear away what was left by processes that died: branches that were being made, and those that only they had.

    Called by every command that has to do with branches; what another command, or another user, has is let be.
    """
    if not settings.branches.is_dir():
        return
    sweep_unfinished(settings.branches, _STATE)
    for branch in list_branches(settings):
        if not branch.facts.is_owned:
            continue
        with contextlib.suppress(OSError), claimed(branch.directory, at_once=True):
            if _read_facts(branch.directory).is_owned:  # its owner may have let it live meanwhile
                branch.stop()


def find_branch(settings: Settings, text: str) -> Branch:
    """The branch of an id or a unique beginning of one; raises BranchUnknown."""
    fits = [branch for branch in list_branches(settings) if branch.facts.id.startswith(text)]
    if len(fits) != 1 or not text:
        cause = "several ids begin so" if len(fits) > 1 else None
        raise BranchUnknown(f"{text!r} names no branch", cause=cause, remedy="`relive ps` lists branches")
    return fits[0]


def restore(
    settings: Settings,
    store: Store,
    commit: CommitId,
    *,
    clock: Clock = Clock.RECORDED,
    name: str | None = None,
    lazily: bool = False,
    is_owned: bool = False,
    recorder: RingMode = RingMode.FREE,
    lay_beside: Callable[[Path], None] | None = None,
    outside: Callable[[list[TcpConnection]], Outside] | None = None,
    answered: frozenset[int] = frozenset(),
) -> Branch:
    """Bring a commit to life in a sealed sandbox; the original, if it still runs, is not touched.

    Args:
        lazily: let it run before its memory is all there, which a page daemon then brings in. A commit of which nothing
            can come later is restored as ever. No other thread of the caller may be at work then (see ``Pager``).
        is_owned: the branch shall end with this process, however that ends, unless ``keep`` is called.
        recorder: what the recorder in its Python processes does in the branch.
        lay_beside: called with the directory of the branch's rings, when these are in it and nothing runs yet.
        outside: told the connections that the commit's processes had opened themselves; says what shall stand for the
            outside, to be found in ``ends`` of the branch. Without it these connections are closed, and nobody is there.
        answered: ports of clients that had taken all that the service sent them, so that their ends shall not get any of it
            again.

    Raises:
        RefUnknown, ObjectMissing, ObjectCorrupt: the store cannot give the commit.
        ImageUnavailable, RestoreUnsupported: the commit is of a container whose image is not here, or that shared too much.
        RestoreFailed, RestoreTimedOut, SealBroken, MemoryLost: the branch did not come to life; nothing is left of it.
        PermissionMissing: the caller is not root.
        DiskFull: no space for the branch's files.
    """
    began = time.monotonic()
    if os.geteuid() != 0:
        raise PermissionMissing(
            "restoring needs root", cause=f"this is uid {os.geteuid()}", remedy="run it with sudo"
        )
    CriuTools(settings.tools_path).check()
    if lazily:
        check_userfault()
    directory = new_place(settings.branches)
    (directory / "images").mkdir()
    sweep(settings)
    ownership = Ownership(directory)
    try:
        branch = _restore_in(
            directory,
            settings,
            store,
            commit,
            clock,
            name,
            began=began,
            lazily=lazily,
            ownership=ownership,
            is_owned=is_owned,
            recorder=recorder,
            lay_beside=lay_beside,
            outside=outside,
            answered=answered,
        )
    except BaseException:
        ownership.close()
        raise
    if is_owned:
        branch.ownership = ownership
    else:
        ownership.let_live()
    return branch


def _restore_in(
    directory: Path,
    settings: Settings,
    store: Store,
    commit: CommitId,
    clock: Clock,
    name: str | None,
    *,
    began: float,
    lazily: bool,
    ownership: Ownership,
    is_owned: bool,
    recorder: RingMode,
    lay_beside: Callable[[Path], None] | None,
    outside: Callable[[list[TcpConnection]], Outside] | None,
    answered: frozenset[int],
) -> Branch:
    """As ``restore``, in a directory that nobody else uses and that is gone when this fails; ``began``: monotonic [s]."""
    tools, identifier = CriuTools(settings.tools_path), directory.name
    pager = None
    if lazily:
        try:
            pager = _start_pager(settings, store, commit, directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    builder = BranchBuilder(directory, tools)
    try:
        manifest = store.manifest(commit)
        ground = _ground(settings, store, commit, manifest, directory)
        builder.stand_on(ground)
        images = directory / "images"
        store.lay_out_images(manifest, images, lazily=pager is not None)
        make_rings(images, directory / "rings", recorder)
        if lay_beside is not None:
            lay_beside(directory / "rings")
        plan = _plan(manifest, images, f"{manifest.host.name[:40]}-{identifier}", clock, settings, ownership)
        if isinstance(ground, ContainerGround):
            lay_out_large_images(store, ground.told, images)
            ground.networks = limit_container(commit, images)
            ground.outside_names = plan.outside_names
            plan = _of_container(plan, ground)
        if outside is not None:
            outward = [one for one, inward in zip(plan.connections, plan.inward, strict=True) if not inward]
            plan = replace(plan, outside=outside(outward))
        built = builder.finish(replace(plan, answered=answered, pager=pager))
        root = _host_pid(built)
        stat = procfs.read_stat(built.init)
        facts = BranchFacts(
            id=identifier,
            commit=commit,
            name=name or manifest.target.name,
            init=built.init,
            init_started=stat.start_ticks if stat is not None else 0,
            root=root,
            clock=clock,
            created_wall_ns=time.time_ns(),
            restore_us=int((time.monotonic() - began) * 1e6),
            seal_us=built.seal_us,
            is_owned=is_owned,
            pager=pager.pid if pager is not None else None,
            pager_started=pager.started if pager is not None else 0,
            mark=settings.mark,
            is_container=manifest.target.kind is TargetKind.CONTAINER,
        )
        branch = Branch(directory, facts, built.peers, built.ends)
        branch.save()
        if pager is not None:
            pager.close()
    except BaseException as error:
        builder.abandon()
        if pager is not None:
            pager.abandon()
        memory = read_memory(directory)
        shutil.rmtree(directory, ignore_errors=True)
        if memory is not None and memory.failure is not None and isinstance(error, ReliveError):
            raise memory_lost(memory.failure) from error
        raise
    return branch


def _start_pager(settings: Settings, store: Store, commit: CommitId, directory: Path) -> Pager | None:
    """The page daemon; None where no page can come later. It is forked, so this comes before there is another thread."""
    manifest = store.manifest(commit)
    if not store.keeps_pages(manifest):
        return None
    with store.open_pages(manifest) as pages:
        return Pager(directory, pages, settings.restore_limit) if pages.processes else None


def _ground(
    settings: Settings, store: Store, commit: CommitId, manifest: Manifest, directory: Path
) -> Ground:
    for stream in ("stdout", "stderr"):
        (directory / "io" / f"{stream}.log").touch()
    if manifest.target.kind is TargetKind.CONTAINER:
        return container_ground(settings, store, commit, manifest, directory)
    trees = {
        layer.point: store.lay_out_layer(layer)
        for layer in manifest.layers
        if layer.kind is LayerKind.OVERLAY and layer.entries
    }
    memory = [
        (layer.point, store.lay_out_layer(layer))
        for layer in manifest.layers
        if layer.kind is LayerKind.TMPFS and layer.entries
    ]
    points = _with_committed(plan_points(read_mounts(), settings.home), trees)
    return HostGround(
        directory=directory,
        home=settings.home,
        tools=settings.tools_path,
        covered=[(point, trees.get(point.point)) for point in points],
        memory_layers=memory,
    )


def _of_container(plan: BranchPlan, ground: ContainerGround) -> BranchPlan:
    """With the addresses that it had, and its output to where `relive logs` looks."""
    streams = dict(zip(ground.told.streams[1:3], ("stdout", "stderr"), strict=False))
    addresses = {*plan.addresses, *ground.told.addresses}
    return replace(plan, addresses=sorted(addresses), streams=streams)


def _plan(
    manifest: Manifest, images: Path, hostname: str, clock: Clock, settings: Settings, ownership: Ownership
) -> BranchPlan:
    processes = read_entries(images / "pstree.img", pb.PstreeEntry)
    limit_capabilities(images, processes)
    limit_sockets(images, processes)
    files = read_files(images)
    connections = read_connections(images, files)
    listening = {port for _, port in manifest.listening}
    addresses = bound_addresses(files) | {connection.peer[0] for connection in connections}
    return BranchPlan(
        addresses=sorted(address for address in addresses if not _is_unspecified(address)),
        connections=connections,
        inward=[connection.local[1] in listening for connection in connections],
        listening=list(manifest.listening),
        outlets=list(manifest.outlets),
        outside_names=read_outside_names(files),
        clock_shift_ns=manifest.taken_wall_ns - time.time_ns() if clock is Clock.RECORDED else None,
        hostname=hostname[:64],
        taken_pids=frozenset(
            number for one in processes for number in (one.pid, one.pgid, one.sid, *one.threads)
        ),
        limit=settings.restore_limit,
        owner=ownership.line,
    )


def _with_committed(points: list[CoveredPoint], trees: Iterable[str]) -> list[CoveredPoint]:
    """The host's points, and those of the commit where nothing is mounted on this host (any more)."""
    here = {point.point for point in points}
    missing = [tree for tree in sorted(trees) if tree not in here and Path(tree).is_dir()]
    return points + [CoveredPoint(tree, f"c{number:02}") for number, tree in enumerate(missing)]


def _is_unspecified(address: str) -> bool:
    return address in ("0.0.0.0", "::")


def _host_pid(built: Built) -> int:
    """The host's number of the restored root. Of each process its numbers in all PID namespaces are told, the host's first."""
    depth = len(_numbers(built.init)) - 1
    for pid in procfs.tree_of(built.init)[1:]:
        numbers = _numbers(pid)
        if len(numbers) > depth and int(numbers[depth]) == built.root:
            return pid
    raise RestoreFailed(
        "the branch ended at once", cause="its root process is gone", remedy="see the branch's logs"
    )


def _numbers(pid: int) -> list[str]:
    return (procfs.status_field(pid, "NSpid") or "").split()
