"""Branches: commits that live again in a sealed sandbox."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from pydantic import Field

from relive.errors import UsageError
from relive.model.addresses import parse_address
from relive.operations.branch_states import BranchState, branch_state, branch_states
from relive.operations.branches import EXEC, ExecParams, Executed, LogPart, LogStream, Stopped, log_part, stop
from relive.operations.operation import Params
from relive.operations.progress import Silent
from relive.operations.restoring import RESTORE, RestoreParams
from relive.server.audit import note_for_audit
from relive.server.authentication import is_loopback, refuse_without
from relive.server.credentials import Scope
from relive.server.routers.provided import (
    TASK_ANSWER,
    Configured,
    MemoryReader,
    Operator,
    Reader,
    Submitted,
    performed,
)
from relive.server.task import Task

__all__ = ["router"]

router = APIRouter(prefix="/branches", tags=["branches"])
Id = Annotated[str, Path(description="The branch's id, or a unique beginning of it", max_length=100)]


@router.get("", operation_id="list_branches")
def listed(
    settings: Configured,
    _caller: Reader,
    ended: Annotated[bool, Query(description="With those that have ended")] = False,
) -> list[BranchState]:
    """Branches of this host, oldest first"""
    return branch_states(settings, ended=ended)


@router.post("", operation_id="restore", status_code=202, responses=TASK_ANSWER)
def restored(
    params: Annotated[RestoreParams, Body(examples=[{"ref": "payments@{2 minutes ago}"}])],
    caller: Operator,
    submitted: Annotated[Submitted, Depends()],
) -> Task:
    """Bring a commit to life in a sealed sandbox; the task's result is the branch

    To `set` or `write` something needs the scope `memory`, too.
    """
    if params.set or params.write:  # what is run there can tell what is in its memory
        refuse_without(caller, Scope.MEMORY)
    for text in params.publish:
        host, _ = parse_address(text.rpartition(":")[0])
        if not is_loopback(host):
            raise UsageError(
                f"{text!r} cannot be published from here",
                cause="whoever reaches that address could reach the branch, without a token",
                remedy="publish at a loopback address, or use `relive restore` on the host",
            )
    return submitted(RESTORE.name, params, caller, params.ref)


@router.get("/{branch}", operation_id="show_branch")
def shown(branch: Id, settings: Configured, _caller: Reader) -> BranchState:
    """One branch"""
    return branch_state(settings, branch)


class CommandParams(Params):
    """What is run in the branch."""

    command: list[str] = Field(description="The command and its arguments", min_length=1, max_length=1000)
    limit: float = Field(default=20.0, gt=0, le=60, description="Seconds after which it is killed")
    most: int = Field(default=1 << 16, gt=0, le=1 << 20, description="Bytes kept of each of its two streams")


@router.post("/{branch}/exec", operation_id="execute")
def executed(
    branch: Id,
    params: Annotated[CommandParams, Body(examples=[{"command": ["cat", "/proc/1/status"]}])],
    settings: Configured,
    _operator: Operator,
    _reader: MemoryReader,
    request: Request,
) -> Executed:
    """Run a command inside a branch, until it ends; who may do this can read its memory"""
    note_for_audit(request.scope, target=f"{branch}: {' '.join(params.command)}")
    full = ExecParams(branch=branch, command=params.command, limit=params.limit, most=params.most)
    return performed(EXEC, settings, full)


@router.get("/{branch}/logs", operation_id="read_logs")
def logs(
    branch: Id,
    settings: Configured,
    _caller: MemoryReader,
    stream: LogStream = LogStream.STDERR,
    after: Annotated[
        int | None, Query(ge=0, le=1 << 60, description="`next` of the part before; without: the end")
    ] = None,
) -> LogPart:
    """What it wrote, or (stubs) what it asked that was not recorded"""
    known = branch_state(settings, branch).facts.id  # so that it is no capsule
    return log_part(settings, known, stream, after)


@router.delete("/{branch}", operation_id="stop_branch")
def stopped(branch: Id, settings: Configured, _caller: Operator, request: Request) -> Stopped:
    """End a branch and remove what was its own"""
    note_for_audit(request.scope, target=branch)
    return stop(settings, [branch], Silent(), only_branches=True)
