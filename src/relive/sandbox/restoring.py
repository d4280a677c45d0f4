"""Making a branch from a commit. What a branch is, and what is done with one that lives, is in ``branch``."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.criu_template import CriuTemplate
from relive.checkpoint.empty_parents import lay_empty_parent, read_heads
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.config import Settings
from relive.errors import (
    PermissionMissing,
    ReliveError,
    RestoreFailed,
)
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.sockets import read_files
from relive.kernel import procfs
from relive.kernel.disk_errors import disk_full
from relive.kernel.read_early import EarlyReader
from relive.kernel.userfault import check_userfault
from relive.model.branch import BranchFacts, Clients, Clock
from relive.model.commit import CommitId, Manifest, TargetKind
from relive.sandbox.branch import Branch, group_prefix, name_commit, sweep
from relive.sandbox.branch_plan import BranchPlan
from relive.sandbox.branch_root import BranchRoot
from relive.sandbox.builder import BranchBuilder, Built
from relive.sandbox.cgroups import Groups
from relive.sandbox.fitted_images import FittedImages, fit_images
from relive.sandbox.lazy.pager import Pager
from relive.sandbox.lazy.state import memory_lost, read_memory
from relive.sandbox.lazy.touched import TouchedMemory
from relive.sandbox.limits import limits_of
from relive.sandbox.open_databases import open_databases
from relive.sandbox.ownership import Ownership
from relive.sandbox.remembered_numbers import Remembered
from relive.sandbox.restore_request import RestoreRequest
from relive.sandbox.rewinder import refuse_rewinding, start_rewinder
from relive.sandbox.rings import make_rings
from relive.sandbox.unfinished import new_place
from relive.store import Store

__all__ = ["MakeRoot", "restore"]

_MISSING_SHOWN = 100
_RUNNING = 1  # task_state of CRIU's images


MakeRoot = Callable[[Settings, Store, CommitId, Manifest, Path], BranchRoot]
"""Makes what a branch stands on, from its commit; the path is the branch's directory."""


def restore(
    settings: Settings, store: Store, commit: CommitId, request: RestoreRequest, make_root: MakeRoot
) -> Branch:
    """Bring a commit to life in a sealed sandbox; the original, if it still runs, is not touched.

    Raises:
        RefUnknown, ObjectMissing, ObjectCorrupt: the store cannot give the commit.
        ImageUnavailable, RestoreUnsupported: the commit is of a container whose image is not here, or that shared too much.
        RestoreFailed: the commit may be wrong (``checkpoint.suspect_captures``).
        RestoreFailed, RestoreTimedOut, SealBroken, MemoryLost: the branch did not come to life; nothing is left of it.
        PermissionMissing: the caller is not root.
        DiskFull: no space for the branch's files.
    """
    began = time.monotonic()
    if os.geteuid() != 0:
        raise PermissionMissing(
            "restoring needs root", cause=f"this is uid {os.geteuid()}", remedy="run it with sudo"
        )
    tools = CriuTools(settings.tools_path)
    if request.template is None:  # else that was done for the branch of which the template was made
        tools.check()
        tools.begin_reading()
    _refuse_suspect(SuspectCaptures(settings.home), store, commit)
    if request.lazily:
        check_userfault()
    try:
        branch, ownership = _restore_claimed(settings, store, commit, request, make_root, began)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full("no space left while restoring", settings.branches, error) from error
        raise
    if request.is_owned:
        branch.ownership = ownership
    else:
        ownership.let_live()
    return branch


def _refuse_suspect(suspects: SuspectCaptures, store: Store, commit: CommitId) -> None:
    if not suspects.is_any():
        return
    facts = store.facts(commit)
    try:
        if not suspects.is_suspect(facts):
            return
        cause = "what was read in the kernel's objects was found to be wrong after it was taken: it may hold what had changed"
    except OSError as error:
        cause = f"whether it may be wrong cannot be read: {error}"
    raise RestoreFailed(
        f"{commit[:10]} is not restored",
        cause=cause,
        remedy="use an older or a later commit; to restore this one all the same,"
        f" take {facts.capture}, or the line of its kernel, out of {suspects.path}",
    )


def _restore_claimed(
    settings: Settings,
    store: Store,
    commit: CommitId,
    request: RestoreRequest,
    make_root: MakeRoot,
    began: float,
) -> tuple[Branch, Ownership]:
    """As ``restore``; the branch ends with what is returned beside it."""
    ownership = Ownership(new_place(settings.branches))
    try:
        name_commit(ownership.directory, commit)  # which is not dropped from now on
        (ownership.directory / "images").mkdir()
        making = _Making(settings, store, commit, request, ownership, began)
        with EarlyReader() as early:
            return making.make(make_root, early), ownership
    except BaseException:
        ownership.close()
        raise


class _Making:
    """One branch that is being made, in a directory that nobody else uses."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        commit: CommitId,
        request: RestoreRequest,
        ownership: Ownership,
        began: float,
    ) -> None:
        """Do nothing yet; ``began``: monotonic [s]."""
        self._settings, self._store, self._commit = settings, store, commit
        self._request, self._ownership, self._began = request, ownership, began
        self._directory = ownership.directory
        self._images = self._directory / "images"
        self._id = self._directory.name
        self._tools = CriuTools(settings.tools_path)
        self._pager: Pager | None = None
        self._remembered: Future[Sequence[Remembered]] = Future()

    def make(self, make_root: MakeRoot, early: EarlyReader) -> Branch:
        """As ``restore``; nothing of it is left when this fails, and the directory is gone."""
        try:
            with contextlib.ExitStack() as undoing:  # the last first: the page daemon ends after process 1
                groups = Groups.make(group_prefix(self._settings) + self._id)
                undoing.callback(groups.remove)
                undoing.callback(self._abandon_pager)
                manifest = self._start_pager() if self._request.lazily else None
                builder = BranchBuilder(
                    self._directory,
                    self._tools,
                    groups,
                    asks=self._request.connects is not None,
                    template=self._request.template,
                )
                undoing.callback(builder.abandon)
                undoing.callback(self._remembered.cancel)
                branch = self._make_with(builder, groups, manifest, make_root, early)
                undoing.pop_all()
                return branch
        except BaseException as error:
            memory = read_memory(self._directory)
            shutil.rmtree(self._directory, ignore_errors=True)
            if memory is not None and memory.failure is not None and isinstance(error, ReliveError):
                raise memory_lost(memory.failure) from error
            raise

    def _start_pager(self) -> Manifest:
        """Start the page daemon, unless no page can come later. It is forked, so this comes before there is another thread."""
        manifest = self._store.manifest(self._commit)
        if not self._store.images.are_paged(manifest):
            return manifest
        with self._store.images.open_pages(manifest) as pages:
            if pages.processes:
                touched = TouchedMemory(self._settings.home, self._commit)
                self._pager = Pager(self._directory, pages, touched, self._settings.restore_limit)
        return manifest

    def _abandon_pager(self) -> None:
        if self._pager is not None:
            self._pager.abandon()

    def _make_with(
        self,
        builder: BranchBuilder,
        groups: Groups,
        manifest: Manifest | None,
        make_root: MakeRoot,
        early: EarlyReader,
    ) -> Branch:
        """Lay out what the builder, which is at work in its own thread, waits for; then what nothing waits for."""
        store, template = self._store, self._request.template
        # With a page daemon the images are others: pages that come later are holes.
        known = FittedImages.known(store, self._commit) if self._pager is None else None
        manifest = known.manifest if known is not None else manifest or store.manifest(self._commit)
        groups.limit(limits_of(self._settings, manifest))
        for stream in ("stdout", "stderr"):
            (self._directory / "io" / f"{stream}.log").touch()
        branch_root = make_root(self._settings, store, self._commit, manifest, self._directory)
        builder.stand_on(branch_root)
        if known is None and self._pager is None:
            # Not sooner: what is small and read until here would wait behind them.
            early.begin(store.images.kept_page_files(manifest))
        fitted = self._lay_out_fitted(manifest, known)
        by_threads = self._pager is None and manifest.target.kind is not TargetKind.CONTAINER
        _have_pages_read_early(self._images, template, by_threads=by_threads)
        plan = self._plan(fitted, branch_root)
        builder.follow(plan)
        # What nothing waits for is done while CRIU works.
        if template is None:  # else that was done for the branch of which the template was made
            sweep(self._settings)
        databases = open_databases(manifest.layers, fitted.facts.written, store.files.lay_out_layer)
        wanted = plan.remembered is not None
        self._remembered.set_result(fitted.remembered(self._images, databases) if wanted else ())
        built = builder.finish()
        root = _host_pid(built)
        if plan.rewinds:  # what it is is kept before it runs
            start_rewinder(self._directory, self._tools, root, plan.clock_shift_ns, self._settings.home)
        writable = branch_root.numbered | {one.path for one in self._remembered.result()}
        unwritable = [path for path, has_journal in databases.items() if has_journal and path not in writable]
        facts = self._facts(manifest, branch_root, built, root, groups, unwritable)
        branch = Branch(self._directory, self._settings.tools_path, facts, built.peers, built.ends)
        branch.save()
        if self._pager is not None:
            self._pager.close()
        return branch

    def _lay_out_fitted(self, manifest: Manifest, known: FittedImages | None) -> FittedImages:
        """Make the images, checked and limited, and the rings that the processes have open."""
        store, request, images = self._store, self._request, self._images
        is_lazy = self._pager is not None
        if known is not None:
            known.lay_out(store, images)
        elif is_lazy:
            store.images.lay_out(manifest, images, lazily=True)
        else:
            store.images.lay_out_small(manifest, images)
        opened = known.facts.files if known is not None else read_files(images)
        make_rings(opened, self._directory / "rings", request.recorder)
        if request.lay_beside is not None:
            request.lay_beside(self._directory / "rings")
        # Whatever has written here before: what is to be checked is checked last. Page files take the place of nothing else.
        fitted = known or fit_images(images, self._commit, manifest, keep=not is_lazy)
        if known is None and not is_lazy:
            store.images.lay_out_page_files(manifest, images)  # so late, since they are being read
        return fitted

    def _plan(self, fitted: FittedImages, branch_root: BranchRoot) -> BranchPlan:
        request, is_lazy = self._request, self._pager is not None
        hostname = f"{fitted.manifest.host.name[:40]}-{self._id}"
        plan = _planned(fitted, hostname, request, self._settings, self._ownership)
        plan = _with_outside(branch_root.fit(self._commit, self._images, plan), request)
        is_container = fitted.manifest.target.kind is TargetKind.CONTAINER
        return replace(
            plan,
            remembered=self._remembered if not is_lazy and not is_container else None,
            answered=request.answered,
            pager=self._pager,
            closes_clients=request.clients is Clients.CLOSE,
            rewinds=request.rewinds and _may_rewind(self._directory, branch_root, is_lazy=is_lazy),
        )

    def _facts(
        self,
        manifest: Manifest,
        branch_root: BranchRoot,
        built: Built,
        root: int,
        groups: Groups,
        unwritable: list[str],
    ) -> BranchFacts:
        request, pager = self._request, self._pager
        stat, root_stat = procfs.read_stat(built.init), procfs.read_stat(root)
        return BranchFacts(
            id=self._id,
            commit=self._commit,
            name=request.name or manifest.target.name,
            init=built.init,
            init_started=stat.start_ticks if stat is not None else 0,
            root=root,
            root_started=root_stat.start_ticks if root_stat is not None else 0,
            groups=[str(group) for group in groups.directories],
            clock=request.clock,
            created_wall_ns=time.time_ns(),
            restore_us=int((time.monotonic() - self._began) * 1e6),
            seal_us=built.seal_us,
            is_owned=request.is_owned,
            pager=pager.pid if pager is not None else None,
            pager_started=pager.started if pager is not None else 0,
            mark=self._settings.mark,
            is_container=manifest.target.kind is TargetKind.CONTAINER,
            missing_files=branch_root.missing_files[:_MISSING_SHOWN],
            missing_count=len(branch_root.missing_files),
            unwritable_databases=unwritable,
            clients=request.clients,
            taken_wall_ns=manifest.taken_wall_ns,
        )


def _with_outside(plan: BranchPlan, request: RestoreRequest) -> BranchPlan:
    """With what stands for those whom the service has asked, if somebody is to."""
    if request.outside is None:
        return plan
    outward = [one for one, inward in zip(plan.connections, plan.inward, strict=True) if not inward]
    return replace(plan, outside=request.outside(outward))


def _have_pages_read_early(images: Path, template: CriuTemplate | None, *, by_threads: bool) -> None:
    """Have CRIU fill memory before its restorer runs, where a library does that in another way.

    From a template; or by several threads (``native/pages_shim.c``), of a single process: in a tree, parts come by fork(2).
    """
    if template is not None:
        template.lay_beside(images)
    elif by_threads and len(heads := read_heads(images)) == 1:
        lay_empty_parent(images, heads)


def _may_rewind(directory: Path, branch_root: BranchRoot, *, is_lazy: bool) -> bool:
    """Whether it may be put back in place, as far as that is known before it is there; else the reason is left in its directory."""
    images = directory / "images"
    root = next(iter(read_entries(images / "pstree.img", pb.PstreeEntry))).pid
    core = next(iter(read_entries(images / f"core-{root}.img", pb.CoreEntry)))
    reasons = {
        "its memory comes while it runs": is_lazy,
        "it is a container's": branch_root.is_container,
        "it was stopped by a signal": core.tc.task_state != _RUNNING,
    }
    for reason, is_so in reasons.items():
        if is_so:
            refuse_rewinding(directory, reason)
            return False
    return True


def _planned(
    fitted: FittedImages,
    hostname: str,
    request: RestoreRequest,
    settings: Settings,
    ownership: Ownership,
) -> BranchPlan:
    manifest, facts = fitted.manifest, fitted.facts
    listening = {port for _, port in manifest.listening}
    return BranchPlan(
        addresses=facts.addresses,
        devices=facts.devices,
        connections=facts.connections,
        inner_pairs=facts.inner_pairs,
        inward=[connection.local[1] in listening for connection in facts.connections],
        listening=list(manifest.listening),
        # CRIU brings back the reading end of a pipe with what nobody has read yet; then it is at its end, as nobody writes.
        outlets=[outlet for outlet in manifest.outlets if outlet.writable],
        outside_names=facts.outside_names,
        clock_shift_ns=manifest.taken_wall_ns - time.time_ns() if request.clock is Clock.RECORDED else None,
        hostname=hostname[:64],
        taken_pids=facts.taken_pids,
        limit=settings.restore_limit,
        owner=ownership.line,
        disk_share=settings.branch_disk,
        networks=list(fitted.networks),
        connects=request.connects if fitted.may_ask else None,
    )


def _host_pid(built: Built) -> int:
    """The host's number of the restored root. Of each process its numbers in all PID namespaces are told, the host's first."""
    depth = len(procfs.namespace_pids(built.init)) - 1
    for pid in procfs.tree_of(built.init)[1:]:
        numbers = procfs.namespace_pids(pid)
        if len(numbers) > depth and numbers[depth] == built.root:
            return pid
    raise RestoreFailed(
        "the branch ended at once", cause="its root process is gone", remedy="see the branch's logs"
    )
