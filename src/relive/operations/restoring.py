"""Restoring: a commit comes back as a branch, in a sealed sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from relive.agent.control.client import ask_agent
from relive.config import Settings
from relive.errors import ReliveError
from relive.model.addresses import parse_publication
from relive.model.branch import BranchFacts, Clients, Clock, unwritable_words
from relive.model.commit import CommitId, Manifest
from relive.model.life_paths import LifePaths
from relive.model.quantities import age, when
from relive.operations.changing_state import (
    KEEP_TEXT,
    MODULE_TEXT,
    SET_TEXT,
    WRITE_TEXT,
    changed_as_asked,
    parse_file,
)
from relive.operations.grammars import each_written_as, written_as
from relive.operations.named import look_up_commit
from relive.operations.operation import Effect, Faces, Operation, Params, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.protocols.egress_window import read_egress
from relive.replay.stubs.speed import Speed, parse_speed
from relive.sandbox.branch import Branch
from relive.sandbox.publish import publish
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store
from relive.watching.processes.since import unlike_then

if TYPE_CHECKING:
    from relive.checkpoint.criu_template import CriuTemplate
    from relive.replay.stubs.lifecycle import StubLifecycle

__all__ = ["RESTORE", "BranchParams", "RestoreParams", "bring_to_life", "report_differences", "restore"]

_STATUS_LIMIT = 2.0  # [s]
_TOLD = 5  # of files that are not as committed


class BranchParams(Params):
    """What comes back, and how."""

    ref: str = Field(description="A commit: id, tag, NAME, or NAME@{2 minutes ago}")
    clock: Clock = Field(default=Clock.RECORDED, description="The wall clock it sees: as recorded, or now")
    clients: Clients = Field(
        default=Clients.KEEP,
        description="Connections that clients had: they stay open and say nothing, or are closed as if the clients had crashed",
    )
    lazy: bool = Field(
        default=False, description="Let it run before its memory is all there; the rest comes behind"
    )
    stubs: bool = Field(
        default=True,
        description="Answer what the service says to others from the recording, where there is one",
    )
    speed: Annotated[str, written_as(parse_speed)] = Field(
        default="1", description="How fast recorded answers come: 1 as recorded, 10, max"
    )


class RestoreParams(BranchParams):
    """As one branch."""

    publish: Annotated[list[str], each_written_as(parse_publication)] = Field(
        default=[], description="HOSTPORT:PORT: reach the branch's port from this host"
    )
    set: list[str] = Field(default=[], max_length=100, description=SET_TEXT)
    write: Annotated[list[str], each_written_as(parse_file)] = Field(
        default=[], max_length=100, description=WRITE_TEXT
    )
    module: str | None = Field(default=None, max_length=400, description=MODULE_TEXT)
    keep_as: str | None = Field(default=None, max_length=200, description=KEEP_TEXT)


def restore(settings: Settings, params: RestoreParams, progress: Progress) -> BranchFacts:
    """Bring a commit to life as a branch, in a sealed sandbox.

    Raises:
        UsageError: an address cannot be published, or the tag is taken. ChangeUnfit: a value cannot be set.
        RefUnknown, RefAmbiguous, StoreError: the store cannot give the commit.
        RestoreFailed: the branch did not come to life; nothing is left of it.
        CommitFailed: it could not be kept; nothing is left of it.
    """
    wanted = [parse_publication(text) for text in params.publish]
    tend(settings, progress)
    store = Store(settings.store)
    commit = store.resolve(params.ref)
    if params.keep_as is not None:
        store.check_tag(params.keep_as, None, force=False)
    branch = bring_to_life(settings, store, commit, params)
    kept = None
    try:
        changed_as_asked(params.set, params.write, params.module, progress)(branch)
        for host, host_port, port in wanted:
            publish(branch, host, host_port, port)
        if params.keep_as is not None:
            kept = _kept(settings, store, branch, params.keep_as, progress)
    except BaseException:
        branch.stop()
        raise
    manifest = store.manifest(commit)
    pending = report_differences(settings, store, manifest, branch.facts, progress)
    return branch.facts.model_copy(update={"newer_pending": pending, "kept": kept})


def _kept(settings: Settings, store: Store, branch: Branch, tag: str, progress: Progress) -> CommitId:
    from relive.sandbox.branch_commit import commit_branch  # few restores need it

    kept = commit_branch(settings, store, branch)
    store.tag(tag, kept.id)
    progress.status(f"Kept as {tag}: commit {kept.id[:10]}.")
    return kept.id


def bring_to_life(
    settings: Settings,
    store: Store,
    commit: CommitId,
    params: BranchParams,
    name: str | None = None,
    template: CriuTemplate | None = None,
    manifest: Manifest | None = None,
    *,
    is_owned: bool = False,
    rewinds: bool = False,
) -> Branch:
    """A branch, with what answers its service; raises as ``restore``.

    Args:
        name: of the branch; None: that of the service.
        manifest: the commit's, where the caller has it already.
        template, is_owned, rewinds: see ``RestoreRequest``.
    """
    from relive.containers.restore.restoring import restore as restore_branch

    pace = parse_speed(params.speed)
    manifest = manifest or store.manifest(commit)
    stage = _stage(settings, manifest, pace) if params.stubs else None
    branch = restore_branch(
        settings,
        store,
        commit,
        RestoreRequest(
            clock=params.clock,
            name=name,
            lazily=params.lazy,
            outside=stage.outside if stage is not None else None,
            clients=params.clients,
            template=template,
            is_owned=is_owned,
            rewinds=rewinds,
        ),
    )
    try:
        if not params.stubs or params.speed != "1":  # a rollback has to know
            asked = {"wants_stubs": params.stubs, "speed": params.speed}
            branch.facts = branch.facts.model_copy(update=asked)
            branch.save()
        if stage is not None and stage.plan is not None:
            from relive.replay.stubs.process import answer_branch

            answer_branch(branch, stage.plan, pace, [port for _, port in manifest.listening], {})
    except BaseException:
        branch.stop()
        raise
    return branch


def report_differences(
    settings: Settings, store: Store, manifest: Manifest, branch: BranchFacts, progress: Progress
) -> int:
    """Say how branches of a commit are unlike what it was, and how old it is; returns how many newer commits are pending."""
    for one in branch.missing_files[:_TOLD]:
        progress.status(f"Not as committed: {one.path} is the host's of now ({one.reason}).")
    if branch.missing_count > _TOLD:
        progress.status(f"So are {branch.missing_count - _TOLD} more; --json lists a hundred.")
    for path in branch.unwritable_databases:
        progress.status(f"{unwritable_words(path)}.")
    for sentence in unlike_then(settings, manifest):
        progress.status(sentence)
    pending = _newer_pending(settings, store, branch.commit, manifest)
    progress.status(_age(manifest, pending))
    return pending


def _newer_pending(settings: Settings, store: Store, commit: CommitId, manifest: Manifest) -> int:
    """Commits that its service's agent has taken and not yet stored, if this is the newest that is."""
    life = manifest.target.life
    newest = store.latest_of_life(life) if life is not None else None
    if life is None or newest is None or newest.id != commit:
        return 0
    paths = LifePaths(settings.capsules / manifest.target.name / life)
    if not paths.agent_pid.exists():
        return 0
    try:
        return int(ask_agent(paths.agent_socket, {"op": "status"}, limit=_STATUS_LIMIT)["pending"])
    except (ReliveError, KeyError):  # it ends just now
        return 0


def _age(manifest: Manifest, pending: int) -> str:
    taken = manifest.taken_wall_ns
    newer = "; a newer one is not durable yet" if pending else ""
    return f"It is of {when(taken)[:19]}, {age(taken)} ago{newer}."


RESTORE = Operation(
    "restore",
    RestoreParams,
    BranchFacts,
    restore,
    Faces(
        cli=("restore",),
        rest=("POST /branches",),
        mcp=Tool(
            Effect.ADDS,
            "Bring a commit to life as a branch in a sealed sandbox; the original is not touched.",
            is_acting=True,
        ),
    ),
    look_up=look_up_commit,
)


def _stage(settings: Settings, manifest: Manifest, pace: Speed) -> StubLifecycle | None:
    """What its service said to others, where that was recorded on this host."""
    if manifest.target.life is None:
        return None
    paths = LifePaths(settings.capsules / manifest.target.name / manifest.target.life)
    egress = read_egress(paths.egress, manifest.taken_monotonic_ns)
    if egress is None:
        return None
    # Only here: the protocols and their stubs are half of what a restore imports, and few services are recorded so.
    from relive.protocols.registry import protocol_of
    from relive.replay.stubs.lifecycle import StubLifecycle
    from relive.replay.stubs.plan import Stubs

    return StubLifecycle(Stubs(egress, protocol_of, authority=paths.authority), pace)
