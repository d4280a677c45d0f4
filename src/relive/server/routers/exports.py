"""Exports: commits as files, kept for a while, each to be fetched at a signed address."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Request, Response
from pydantic import BaseModel, Field

from relive.operations.exports import EXPORT
from relive.operations.operation import Params
from relive.server.audit import note_for_audit
from relive.server.export_shelf import ExportStore
from relive.server.routers.provided import TASK_ANSWER, MemoryReader, Submitted
from relive.server.signed_urls import LONGEST, SignedUrls
from relive.server.task import Task
from relive.server.task_kinds import ExportTask

__all__ = ["router"]

router = APIRouter(prefix="/exports", tags=["exports"])
Id = Annotated[str, Path(description="The export's id, which is that of its task", max_length=100)]


def _shelf(request: Request) -> ExportStore:
    export_store: ExportStore = request.app.state.export_store
    return export_store


def _links(request: Request) -> SignedUrls:
    links: SignedUrls = request.app.state.links
    return links


Kept = Annotated[ExportStore, Depends(_shelf)]
Signed = Annotated[SignedUrls, Depends(_links)]


class Address(BaseModel):
    """A signed address. Who has it can fetch the file until it expires or is revoked; times are Unix seconds."""

    link: str
    export: str
    asked_by: str
    created: int
    expires: int
    revoked: int | None


class NewAddress(Address):
    """With the address itself, which is told only once."""

    url: str = Field(description="Path and query, below this server")


class ExportAsked(NewAddress):
    """An export that is being written; its address answers 404 until the task has succeeded."""

    task: Task


class ExportKept(BaseModel):
    """An export that is there; times are Unix seconds."""

    id: str
    name: str
    bytes: int
    asked_by: str
    created: int
    expires: int


class AddressParams(Params):
    """How long an address is valid."""

    lifetime: int = Field(default=3600, ge=1, le=LONGEST, description="Seconds")


@router.post(
    "", operation_id="export", status_code=202, responses={202: {**TASK_ANSWER[202], "model": ExportAsked}}
)
def asked(
    params: Annotated[ExportTask, Body(examples=[{"ref": "payments", "lifetime": 3600}])],
    caller: MemoryReader,
    submitted: Annotated[Submitted, Depends()],
    links: Signed,
) -> ExportAsked:
    """Write a commit to a file, and give a signed address at which it can be fetched by who has no token

    Who can fetch it can read the memory of the service, unless it is encrypted.
    """
    task = submitted(EXPORT.name, params, caller, params.ref)
    link, url = links.issue(task.id, lifetime=min(params.lifetime, LONGEST), asked_by=caller.who)
    return ExportAsked(**asdict(link), url=url, task=task)


@router.get("", operation_id="list_exports")
def listed(export_store: Kept, _caller: MemoryReader) -> list[ExportKept]:
    """Exports that are kept, the oldest first"""
    return [ExportKept(**asdict(one)) for one in export_store.all()]


@router.delete("/{export}", operation_id="delete_export", status_code=204)
def deleted(export: Id, export_store: Kept, _caller: MemoryReader, request: Request) -> Response:
    """Remove an export; its addresses lead nowhere then"""
    note_for_audit(request.scope, target=export)
    export_store.delete(export)
    return Response(status_code=204)


@router.get("/{export}/links", operation_id="list_links")
def addresses(export: Id, export_store: Kept, links: Signed, _caller: MemoryReader) -> list[Address]:
    """The addresses of an export, without their signatures"""
    return [Address(**asdict(one)) for one in links.links(export_store.get(export).id)]


@router.post("/{export}/links", operation_id="make_link", status_code=201)
def signed(
    export: Id,
    params: Annotated[AddressParams, Body(examples=[{"lifetime": 600}])],
    export_store: Kept,
    links: Signed,
    caller: MemoryReader,
    request: Request,
) -> NewAddress:
    """Make another signed address"""
    note_for_audit(request.scope, target=export)
    link, url = links.issue(export_store.get(export).id, lifetime=params.lifetime, asked_by=caller.who)
    return NewAddress(**asdict(link), url=url)


@router.delete("/{export}/links/{link}", operation_id="revoke_link")
def revoked(
    export: Id,
    link: Annotated[str, Path(max_length=100)],
    links: Signed,
    _caller: MemoryReader,
    request: Request,
) -> Address:
    """Revoke an address, at once and for good"""
    note_for_audit(request.scope, target=f"{export} {link}")
    return Address(**asdict(links.revoke(link)))
