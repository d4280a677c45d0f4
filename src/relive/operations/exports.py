"""Exports: a commit as one file, with its incidents."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path

from cryptography.fernet import MultiFernet
from pydantic import Field

from relive.config import Settings
from relive.containers.archive.compression import Compression, by_suffix
from relive.containers.archive.exporting import export_checkpoint
from relive.containers.archive.oci_image import export_image
from relive.errors import UsageError
from relive.model.commit import CommitId
from relive.operations.named import look_up_commit_or_incident
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Result, Tool
from relive.operations.progress import Progress
from relive.remotes.case_transfer import meant
from relive.remotes.envelope import read_keys
from relive.remotes.exporting import Exported
from relive.remotes.exporting import export as write
from relive.remotes.incident_records import packed
from relive.store import Store

__all__ = ["EXPORT", "ContentParams", "ExportParams", "ExportWritten", "Format", "export"]


class Format(StrEnum):
    """What is written."""

    RELIVE = "relive"
    PODMAN = "podman"
    CHECKPOINTCTL = "checkpointctl"
    OCI = "oci"


class ContentParams(Params):
    """What is written, and how."""

    ref: str = Field(description="The commit (id, tag, NAME, NAME@{2 minutes ago}), or incident/NUMBER")
    encrypt: bool = Field(default=False, description="Encrypt it with the newest key")
    format: Format = Field(
        default=Format.RELIVE,
        description="For `relive import`; to restore with podman; only to look into; or an OCI image of a checkpoint",
    )
    compress: Compression | None = Field(
        default=None,
        description="Of a checkpoint archive, by the file's name if it is not given; of an image's layer, gzip",
    )
    incidents: bool = Field(
        default=True,
        description="Also what replays of its incidents need: recorded requests, calls, the error package, other commits",
    )


class ExportParams(ContentParams):
    """Where it is written to, by who may name files of the host."""

    file: Path = Field(description="The file to write")
    key_file: Path | None = Field(
        default=None, description="Keys of encrypted archives, one a line; without, the setting export_keys"
    )
    force: bool = Field(default=False, description="Replace a file that exists")


class ExportWritten(Result):
    """The file; ``parts``: how many files and packs are in it, ``is_container``: the commit is of one,
    ``incidents``: numbers of those that are in it.
    """

    id: CommitId
    file: str
    format: Format
    encrypted: bool
    parts: int
    bytes: int
    is_container: bool
    incidents: list[int]


def export(settings: Settings, params: ExportParams, progress: Progress) -> ExportWritten:
    """Write a commit to one file, with all it needs; it is there whole and durable on return, or not at all.

    Raises:
        UsageError: what is asked for cannot be meant, or the file is there already.
        RefUnknown, RefAmbiguous, StoreError: the commit cannot be read.
        DiskFull: the file could not be written.
    """
    if params.key_file is not None and not params.encrypt:
        raise UsageError("--key-file is for --encrypt", remedy="add --encrypt, or leave --key-file out")
    store = Store(settings.store)
    if params.format is Format.RELIVE:
        if params.compress is not None:
            raise UsageError(
                "--compress is for checkpoint archives",
                remedy="leave it out: what Relive keeps is compressed",
            )
        keys = read_keys(params.key_file or settings.export_keys) if params.encrypt else None
        written, numbers = _write_archive(settings, store, params, keys, progress)
    else:
        if params.encrypt:
            raise UsageError(
                "a checkpoint archive is not encrypted",
                cause="neither podman nor checkpointctl could read it",
                remedy="encrypt the file yourself, or leave --format out",
            )
        written, numbers = _write_checkpoint(settings, store, params, progress), []
    return ExportWritten(
        id=written.commit,
        file=str(params.file),
        format=params.format,
        encrypted=params.encrypt,
        parts=written.parts,
        bytes=written.bytes,
        is_container=store.facts(written.commit).container is not None,
        incidents=numbers,
    )


def _write_archive(
    settings: Settings, store: Store, params: ExportParams, keys: MultiFernet | None, progress: Progress
) -> tuple[Exported, list[int]]:
    commit, incidents = meant(settings, store, params.ref, incidents=params.incidents)
    with contextlib.ExitStack() as stack:
        ready = [stack.enter_context(packed(settings, store, one)) for one in incidents]
        written = write(
            store,
            commit,
            params.file,
            keys=keys,
            force=params.force,
            show=progress.transfer,
            incidents=ready,
        )
    return written, [one.number for one in incidents]


def _write_checkpoint(settings: Settings, store: Store, params: ExportParams, progress: Progress) -> Exported:
    commit, _ = meant(settings, store, params.ref, incidents=False)
    if params.format is Format.OCI:
        packing = params.compress or Compression.GZIP
        return export_image(store, commit, params.file, packing, force=params.force, show=progress.transfer)
    return export_checkpoint(
        store,
        commit,
        params.file,
        params.compress or by_suffix(params.file),
        only_to_inspect=params.format is Format.CHECKPOINTCTL,
        force=params.force,
        show=progress.transfer,
    )


EXPORT = Operation(
    "export",
    ExportParams,
    ExportWritten,
    export,
    Faces(
        cli=("export",),
        rest=("POST /exports", "GET /exports/{export}/file"),
        mcp=Tool(
            Effect.ADDS,
            "Write a commit to one file, which `relive import` takes in on another host.",
            is_acting=True,
        ),
        only=(
            Only(
                ("file", "key_file", "force"),
                frozenset({Face.CLI, Face.MCP}),
                "the server keeps the file itself, under the setting export_keys, and gives an address",
            ),
        ),
    ),
    look_up=look_up_commit_or_incident,
)
