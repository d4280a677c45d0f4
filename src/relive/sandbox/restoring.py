"""Making a branch from a commit. What a branch is, and what is done with one that lives, is in ``branch``."""

from __future__ import annotations

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
        with EarlyReader() as early:
            return _restore_in(
                settings, store, commit, request, make_root, ownership, early, began
            ), ownership
    except BaseException:
        ownership.close()
        raise


def _restore_in(
    settings: Settings,
    store: Store,
    commit: CommitId,
    request: RestoreRequest,
    make_root: MakeRoot,
    ownership: Ownership,
    early: EarlyReader,
    began: float,
) -> Branch:
    """As ``restore``, in a directory that nobody else uses and that is gone when this fails; ``began``: monotonic [s]."""
    directory, pager, manifest = ownership.directory, None, None
    tools, identifier = CriuTools(settings.tools_path), directory.name
    if request.lazily:
        try:
            pager, manifest = _start_pager(settings, store, commit, directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    is_lazy = pager is not None
    groups = Groups.make(group_prefix(settings) + identifier)
    template = request.template
    remembered: Future[Sequence[Remembered]] = Future()
    builder = BranchBuilder(directory, tools, groups, asks=request.connects is not None, template=template)
    try:
        # With a page daemon the images are others: pages that come later are holes.
        known = FittedImages.known(store, commit) if not is_lazy else None
        manifest = known.manifest if known is not None else manifest or store.manifest(commit)
        groups.limit(limits_of(settings, manifest))
        for stream in ("stdout", "stderr"):
            (directory / "io" / f"{stream}.log").touch()
        branch_root = make_root(settings, store, commit, manifest, directory)
        builder.stand_on(branch_root)
        if known is None and not is_lazy:
            # Not sooner: what is small and read until here would wait behind them.
            early.begin(store.images.kept_page_files(manifest))
        images = directory / "images"
        fitted = _lay_out_fitted(store, commit, manifest, directory, request, known, is_lazy=is_lazy)
        is_container = manifest.target.kind is TargetKind.CONTAINER
        _have_pages_read_early(images, template, by_threads=not is_lazy and not is_container)
        hostname = f"{manifest.host.name[:40]}-{identifier}"
        plan = branch_root.fit(commit, images, _plan(fitted, hostname, request, settings, ownership))
        plan = replace(
            _with_outside(plan, request),
            remembered=remembered if not is_lazy and not is_container else None,
            answered=request.answered,
            pager=pager,
            closes_clients=request.clients is Clients.CLOSE,
            rewinds=request.rewinds and _may_rewind(directory, branch_root, is_lazy=is_lazy),
        )
        builder.follow(plan)
        # What nothing waits for is done while CRIU works.
        if template is None:  # else that was done for the branch of which the template was made
            sweep(settings)
        databases = open_databases(manifest.layers, fitted.facts.written, store.files.lay_out_layer)
        remembered.set_result(fitted.remembered(images, databases) if plan.remembered is not None else ())
        built = builder.finish()
        writable = branch_root.numbered | {one.path for one in remembered.result()}
        root = _running_root(built, plan, directory, tools, settings.home)
        stat, root_stat = procfs.read_stat(built.init), procfs.read_stat(root)
        facts = BranchFacts(
            id=identifier,
            commit=commit,
            name=request.name or manifest.target.name,
            init=built.init,
            init_started=stat.start_ticks if stat is not None else 0,
            root=root,
            root_started=root_stat.start_ticks if root_stat is not None else 0,
            groups=[str(group) for group in groups.directories],
            clock=request.clock,
            created_wall_ns=time.time_ns(),
            restore_us=int((time.monotonic() - began) * 1e6),
            seal_us=built.seal_us,
            is_owned=request.is_owned,
            pager=pager.pid if pager is not None else None,
            pager_started=pager.started if pager is not None else 0,
            mark=settings.mark,
            is_container=is_container,
            missing_files=branch_root.missing_files[:_MISSING_SHOWN],
            missing_count=len(branch_root.missing_files),
            unwritable_databases=[
                path for path, has_journal in databases.items() if has_journal and path not in writable
            ],
            clients=request.clients,
            taken_wall_ns=manifest.taken_wall_ns,
        )
        branch = Branch(directory, settings.tools_path, facts, built.peers, built.ends)
        branch.save()
        if pager is not None:
            pager.close()
    except BaseException as error:
        remembered.cancel()
        builder.abandon()
        if pager is not None:
            pager.abandon()
        groups.remove()
        memory = read_memory(directory)
        shutil.rmtree(directory, ignore_errors=True)
        if memory is not None and memory.failure is not None and isinstance(error, ReliveError):
            raise memory_lost(memory.failure) from error
        raise
    return branch


def _lay_out_fitted(
    store: Store,
    commit: CommitId,
    manifest: Manifest,
    directory: Path,
    request: RestoreRequest,
    known: FittedImages | None,
    *,
    is_lazy: bool,
) -> FittedImages:
    """Make the images, checked and limited, and the rings that the processes have open.

    Args:
        is_lazy: pages come later, and are holes.
    """
    images = directory / "images"
    if known is not None:
        known.lay_out(store, images)
    elif is_lazy:
        store.images.lay_out(manifest, images, lazily=True)
    else:
        store.images.lay_out_small(manifest, images)
    opened = known.facts.files if known is not None else read_files(images)
    make_rings(opened, directory / "rings", request.recorder)
    if request.lay_beside is not None:
        request.lay_beside(directory / "rings")
    # Whatever has written here before: what is to be checked is checked last. Page files take the place of nothing else.
    fitted = known or fit_images(images, commit, manifest, keep=not is_lazy)
    if known is None and not is_lazy:
        store.images.lay_out_page_files(manifest, images)  # so late, since they are being read
    return fitted


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


def _running_root(built: Built, plan: BranchPlan, directory: Path, tools: CriuTools, home: Path) -> int:
    """Host pid of the restored root; what it is is kept before it runs, where that is wanted."""
    root = _host_pid(built)
    if plan.rewinds:
        start_rewinder(directory, tools, root, plan.clock_shift_ns, home)
    return root


def _start_pager(
    settings: Settings, store: Store, commit: CommitId, directory: Path
) -> tuple[Pager | None, Manifest]:
    """The page daemon, None where no page can come later; and the manifest. It is forked, so this comes before there is another
    thread.
    """
    manifest = store.manifest(commit)
    if not store.images.are_paged(manifest):
        return None, manifest
    with store.images.open_pages(manifest) as pages:
        if not pages.processes:
            return None, manifest
        touched = TouchedMemory(settings.home, commit)
        return Pager(directory, pages, touched, settings.restore_limit), manifest


def _plan(
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
