"""Commits, and the tags that keep them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from pydantic import Field

from relive.operations.commits import (
    CommitDetail,
    CommitPage,
    CommitsParams,
    page_of_commits,
    show_commit,
)
from relive.operations.committing import COMMIT, CommitParams, TargetParams
from relive.operations.deleting import Deleted, delete_commit
from relive.operations.operation import Params
from relive.operations.progress import Silent
from relive.operations.tags import Tag, add_tag, delete_tag, list_tags
from relive.server.audit import note_for_audit
from relive.server.routers.provided import TASK_ANSWER, Configured, Operator, Reader, Submitted
from relive.server.task import Task

__all__ = ["router"]

router = APIRouter(tags=["commits"])
Ref = Annotated[
    str, Path(description="Id or a beginning of it, tag, NAME, or NAME@{2 minutes ago}", max_length=400)
]
TagName = Annotated[str, Path(description="The tag", max_length=200)]


class CommitsQuery(CommitsParams):
    """Which commits, in pages that a server can make."""

    limit: int = Field(default=50, ge=1, le=500, description="At most so many")


@router.get("/commits", operation_id="list_commits")
def listed(settings: Configured, _caller: Reader, params: Annotated[CommitsQuery, Query()]) -> CommitPage:
    """Commits, newest first, a page at a time; what arrives meanwhile shifts no page"""
    return page_of_commits(settings, params, Silent())


@router.post("/commits", operation_id="take_commit", status_code=202, responses=TASK_ANSWER)
def commit_target(
    params: Annotated[TargetParams, Body(examples=[{"target": "payments", "tag": "before-deploy"}])],
    caller: Operator,
    submitted: Annotated[Submitted, Depends()],
) -> Task:
    """Commit the live state of a target, which runs on"""
    return submitted(COMMIT.name, CommitParams(**dict(params)), caller, params.target)


@router.get("/commits/{ref}", operation_id="show_commit")
def shown(ref: Ref, settings: Configured, _caller: Reader) -> CommitDetail:
    """One commit in full"""
    return show_commit(settings, ref)


@router.delete("/commits/{ref}", operation_id="delete_commit")
def deleted(ref: Ref, settings: Configured, _caller: Operator, request: Request) -> Deleted:
    """Drop a commit that neither a tag nor an incident holds"""
    note_for_audit(request.scope, target=ref)
    return delete_commit(settings, ref)


class TagParams(Params):
    """What a tag shall name; ``force`` moves a tag that exists."""

    ref: str
    force: bool = False


@router.get("/tags", operation_id="list_tags")
def tags(settings: Configured, _caller: Reader) -> list[Tag]:
    """All tags, in order of their names"""
    return list_tags(settings)


@router.put("/tags/{name}", operation_id="put_tag")
def tagged(
    name: TagName,
    params: Annotated[TagParams, Body(examples=[{"ref": "payments"}])],
    settings: Configured,
    _caller: Operator,
    request: Request,
) -> Tag:
    """Give a commit a name that keeps it"""
    note_for_audit(request.scope, target=params.ref)
    return add_tag(settings, name, params.ref, force=params.force)


@router.delete("/tags/{name}", operation_id="delete_tag", status_code=204)
def untagged(name: TagName, settings: Configured, _caller: Operator) -> Response:
    """Remove a tag; the commit stays"""
    delete_tag(settings, name)
    return Response(status_code=204)
