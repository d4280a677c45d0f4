"""``relive log``: commits, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import Settings, load_settings
from relive.errors import TargetUnknown
from relive.model.commit import CommitId
from relive.model.quantities import age, duration, size, when
from relive.operations.commits import Commit, CommitsParams, DamagedCommit, page_of_commits
from relive.operations.targets import require_known

__all__ = ["log"]


def log(
    target: Annotated[str | None, typer.Argument(help="Only commits of this target")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="At most so many", min=1)] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a list ended that said so")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("-s", "--search", help="Only with these words in the target's name or command line"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List commits, newest first"""
    terminal = Terminal(as_json=as_json)
    params = CommitsParams(target=target, search=search, after=after, limit=limit)
    settings = load_settings()
    page = page_of_commits(settings, params, terminal)
    if target is not None and not page.items:
        _require_known(settings, target, page.damaged)
    rows = [
        [
            one.id[:10],
            one.name,
            when(one.taken_wall_ns),
            age(one.taken_wall_ns),
            one.trigger,
            duration(one.pause_us),
            duration(one.durable_us),
            size(one.bytes),
            ", ".join([*one.tags, *["(suspect)"] * one.suspect, *["(damaged)"] * one.damaged]),
        ]
        for one in page.items
    ]
    columns = ["commit", "target", "taken", "ago", "trigger", "pause", "durable", "size", "tags"]
    nothing = f"There are no commits{'' if target is None else f' of {target}'}{' to list' if page.damaged else ''}."
    listed = {one.id for one in page.items}
    faults = {one.id: one for one in page.damaged}
    records = [_record(one.id, one, faults.get(one.id)) for one in page.items]
    records += [_record(one.id, None, one) for one in page.damaged if one.id not in listed]
    terminal.table(records, columns, rows, nothing)
    for one in page.damaged:
        terminal.status(
            f"{'Damaged' if one.id in listed else 'Not listed'}: {one.message} ({one.code}): {one.cause}"
        )
    for remedy in dict.fromkeys(one.remedy for one in page.damaged):
        terminal.status(f"Remedy: {remedy}")
    if page.next is not None:
        terminal.status(f"There are more: --after {page.next}")


def _record(name: CommitId, commit: Commit | None, fault: DamagedCommit | None) -> dict[str, object]:
    """A commit with ``--json``: the same fields for each; null is what nothing says of one whose manifest cannot be read."""
    said = dict.fromkeys(Commit.model_fields) if commit is None else commit.model_dump(mode="json")
    known = {"id": name, "tags": [], "suspect": False, "damaged": True} if commit is None else {}
    wrong = None if fault is None else fault.model_dump(mode="json", exclude={"id"})
    return {**said, **known, "fault": wrong}


def _require_known(settings: Settings, target: str, damaged: Sequence[DamagedCommit]) -> None:
    try:
        require_known(settings, target)
    except TargetUnknown as error:
        if not damaged:
            raise
        raise TargetUnknown(
            error.message,
            cause=f"{error.cause}; {len(damaged)} commits cannot be read, and any may be of it",
            remedy="`relive log` names them, `relive repair --from STORE` fetches them from another store that has them",
        ) from None
