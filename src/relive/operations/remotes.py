"""Commits and incidents that travel to a remote and come from one."""

from __future__ import annotations

from pydantic import Field

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.target import host_facts
from relive.config import Settings
from relive.model.commit import CommitId
from relive.model.token_scope import Scope
from relive.operations.named import look_up_commit_or_incident
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.remotes.case_transfer import commits_of, meant
from relive.remotes.pull import pull as fetch
from relive.remotes.push import push as send
from relive.remotes.references import resolve_remote_reference
from relive.remotes.remote import open_remote
from relive.remotes.remote_incidents import fetch_incident, push_incident, records_of
from relive.store import Store

__all__ = ["PULL", "PUSH", "PullParams", "Pulled", "PushParams", "Pushed", "pull", "push"]

_REMOTE = "s3://BUCKET/PREFIX or file:///PATH"
_ON_THE_HOST = frozenset({Scope.HOST})


class PushParams(Params):
    """What is sent, and where to."""

    remote: str = Field(description=_REMOTE)
    ref: str = Field(description="The commit (id, tag, NAME, NAME@{2 minutes ago}), or incident/NUMBER")
    incidents: bool = Field(
        default=True,
        description="Also what replays of its incidents need: recorded requests, calls, the error package, other commits",
    )
    force: bool = Field(default=False, description="Move a tag that exists there")


class Pushed(Result):
    """What the remote has now.

    Attributes:
        tag: by which it has the commit; None: by its id only.
        is_new: it did not have the commit.
        sent_parts, sent_bytes: of the commit itself, as far as they had to travel; ``held_parts`` had not.
        incidents: numbers of those that refer to it; ``sent_incidents``: of those among them that were not there.
    """

    id: CommitId
    remote: str
    tag: str | None
    is_new: bool
    sent_parts: int
    sent_bytes: int
    held_parts: int
    incidents: list[int]
    sent_incidents: list[int]


def push(settings: Settings, params: PushParams, progress: Progress) -> Pushed:
    """Send a commit, of which only what the remote does not have travels; after a break it goes on where it ended.

    Raises:
        RefUnknown, RefAmbiguous, IncidentUnknown, StoreError: the store cannot give it.
        UsageError: the remote's text is none, or the tag exists there and is not to be moved.
        ExchangeError: the remote did not take it.
    """
    store = Store(settings.store)
    commit_id, wanted = meant(settings, store, params.ref, incidents=params.incidents)
    tag = params.ref if params.ref in store.tags() else None
    target = open_remote(params.remote, make=True)
    sent = send(store, target, commit_id, tag=tag, force=params.force, show=progress.transfer)
    for commit in {commit: None for one in wanted for commit in commits_of(store, one)}:
        send(store, target, commit, tag=None, force=False, show=progress.transfer)
    pushed = [one.number for one in wanted if push_incident(settings, store, target, one, progress.transfer)]
    return Pushed(
        id=sent.commit,
        remote=params.remote,
        tag=tag,
        is_new=sent.is_new,
        sent_parts=sent.parts,
        sent_bytes=sent.bytes,
        held_parts=sent.held,
        incidents=[one.number for one in wanted],
        sent_incidents=pushed,
    )


PUSH = Operation(
    "push",
    PushParams,
    Pushed,
    push,
    Faces(
        cli=("push",),
        rest=Route(
            "POST", "/pushes", _ON_THE_HOST, "Send a commit and its incidents to a remote", is_task=True
        ),
        mcp=Tool(Effect.ADDS, "Send a commit and its incidents to a remote.", is_for_host=True),
    ),
    look_up=look_up_commit_or_incident,
)


class PullParams(Params):
    """What is fetched, and where from."""

    remote: str = Field(description=_REMOTE)
    ref: str = Field(description="An id or its unique beginning, or a tag that was pushed")
    tag: str | None = Field(
        default=None, description="Give the commit this tag here; without, that of the ref"
    )
    incidents: bool = Field(
        default=True,
        description="Also the incidents that were pushed with it, and the commits that they need",
    )
    force: bool = Field(default=False, description="Fetch it although this host cannot run it; move a tag")


class Pulled(Result):
    """What is here now.

    Attributes:
        tag: that keeps it here; None: none does.
        is_new: it was not here.
        fetched_parts, fetched_bytes: of the commit itself, as far as they had to travel; ``held_parts`` had not.
        incidents: numbers here of those that came along; ``new_incidents``: of those among them that were not here.
    """

    id: CommitId
    remote: str
    tag: str | None
    is_new: bool
    fetched_parts: int
    fetched_bytes: int
    held_parts: int
    incidents: list[int]
    new_incidents: list[int]


def pull(settings: Settings, params: PullParams, progress: Progress) -> Pulled:
    """Fetch a commit, of which only what is not here travels; after a break it goes on where it ended.

    Raises:
        RefUnknown, RefAmbiguous: the remote has none of that name.
        HostUnfit, SignatureInvalid: it cannot run here, or is not trusted; said before anything travels.
        UsageError: the remote's text is none, or the tag cannot be one or is taken.
        ExchangeError, DiskFull, StoreError: it could not be fetched.
    """
    store = Store(settings.store)
    source = open_remote(params.remote, make=False)
    found = resolve_remote_reference(source, params.ref)
    here = host_facts(CriuTools(settings.tools_path).version)
    name = params.tag if params.tag is not None else found.tag
    if name is not None:
        store.check_tag(name, found.commit, force=params.force)
    came = fetch(store, source, found.commit, here, force=params.force, show=progress.transfer)
    records = records_of(source, store.internals.keyring, found.commit) if params.incidents else []
    for commit in {commit: None for one in records for commit in one.commits if commit != found.commit}:
        fetch(store, source, commit, here, force=params.force, show=progress.transfer)
    taken = [fetch_incident(settings, store, source, one, progress.transfer) for one in records]
    if name is not None:
        store.tag(name, came.commit, force=True)
    return Pulled(
        id=came.commit,
        remote=params.remote,
        tag=name,
        is_new=came.is_new,
        fetched_parts=came.parts,
        fetched_bytes=came.bytes,
        held_parts=came.held,
        incidents=[one.number for one in taken],
        new_incidents=[one.number for one in taken if one.is_new],
    )


PULL = Operation(
    "pull",
    PullParams,
    Pulled,
    pull,
    Faces(
        cli=("pull",),
        rest=Route(
            "POST", "/pulls", _ON_THE_HOST, "Fetch a commit and its incidents from a remote", is_task=True
        ),
        mcp=Tool(Effect.ADDS, "Fetch a commit and its incidents from a remote.", is_for_host=True),
    ),
)
