"""What differs between two commits of a service: files, processes, descriptors, memory, and, where asked, Python's values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.file_changes import FileDifference
from relive.inspection.memory_changes import MemoryChanges
from relive.inspection.state_changes import FieldChange, StateChanges
from relive.model.commit import CommitId, Manifest
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Result, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import Store

if TYPE_CHECKING:
    from relive.inspection.python.branches import AskedBranch
    from relive.inspection.python.values import PythonSums, PythonValues

__all__ = ["DIFF", "CommitDifference", "DiffParams", "PythonChanges", "diff"]

_DEPTH, _MOST_VALUES = 12, 200_000
_MOST_SUMMED = 10_000_000  # of commits of one life, of which only what differs is told


class DiffParams(Params):
    """Which commits are compared, and how far."""

    before: str = Field(max_length=400, description="A commit: id, tag, NAME, or NAME@{2 minutes ago}")
    after: str = Field(max_length=400, description="Another commit of the same service")
    python: bool = Field(
        default=False,
        description="Compare the values of the service's own Python modules, too, in a branch of each",
    )
    process: int | None = Field(
        default=None,
        ge=1,
        le=1 << 22,
        description="Whose values; its number inside. Without: the Python process that has loaded most of the service",
    )
    limit: float = Field(default=30.0, gt=0, le=300, description="Seconds for the values of each")


class PythonChanges(Result):
    """Values by their path; None: there is none. ``compared``: values that both have; ``cut``: there are more.

    ``process``: whose values they are, the number inside; None in results that were kept before it was told.
    """

    process: int | None = None
    changes: list[FieldChange]
    compared: int
    cut: bool


class CommitDifference(Result):
    """All that differs; ``same_life``: both are of one start of the service, so addresses and numbers are comparable."""

    before: CommitId
    after: CommitId
    target: str
    same_life: bool
    files: list[FileDifference]
    state: StateChanges
    memory: MemoryChanges
    python: PythonChanges | None


def diff(settings: Settings, params: DiffParams, progress: Progress) -> CommitDifference:
    """Compare two commits; secrets are masked.

    Raises:
        RefUnknown, RefAmbiguous, StoreError: the store cannot give one of them.
        UsageError: they are of different services, or one holds no memory; or their Python cannot be asked.
        RestoreFailed: no branch of one came to life, where values are wanted.
    """
    from relive.inspection.file_changes import file_differences
    from relive.inspection.memory_changes import memory_changes
    from relive.inspection.reading import read_state
    from relive.inspection.state_changes import state_changes

    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    ids = store.resolve(params.before), store.resolve(params.after)
    manifests = store.manifest(ids[0]), store.manifest(ids[1])
    _refuse_strangers(*manifests)
    with store.images.open_memory(manifests[0]) as before, store.images.open_memory(manifests[1]) as after:
        old = read_state(before, ids[0], manifests[0], mask)
        new = read_state(after, ids[1], manifests[1], mask)
        memory = memory_changes(before, after, old, new)
    files = file_differences(manifests[0].layers, manifests[1].layers, store.files.content)
    is_one_life = manifests[0].target.life == manifests[1].target.life is not None
    return CommitDifference(
        before=ids[0],
        after=ids[1],
        target=manifests[1].target.name,
        same_life=is_one_life,
        files=[
            one.model_copy(update={"lines": [mask.sentence(line) for line in one.lines]}) for one in files
        ],
        state=state_changes(old, new),
        memory=memory,
        python=_python(settings, store, ids, params, mask, memory, is_one_life=is_one_life)
        if params.python
        else None,
    )


def _look_up(settings: Settings, params: DiffParams) -> None:
    store = Store(settings.store)
    for ref in (params.before, params.after):
        store.resolve(ref)


DIFF = Operation(
    "diff",
    DiffParams,
    CommitDifference,
    diff,
    Faces(
        cli=("diff",),
        rest=(
            "POST /commits/{ref}/differences",
            "GET /commits/{ref}/differences",
        ),
        mcp=Tool(
            Effect.READS,
            "What differs between two commits of a service: files, processes, descriptors, memory, with `python` values.",
        ),
        only=(
            Only(
                ("after", "python"),
                frozenset({Face.CLI, Face.MCP}),
                "the path names the later commit, and POST asks for values while GET does not",
            ),
        ),
    ),
    look_up=_look_up,
)


def _refuse_strangers(before: Manifest, after: Manifest) -> None:
    if before.target.name != after.target.name:
        raise UsageError(
            f"{before.target.name!r} and {after.target.name!r} are different services",
            cause="only commits of one service have anything in common that could differ",
            remedy="`relive log NAME` lists the commits of one",
        )


def _python(
    settings: Settings,
    store: Store,
    ids: Iterable[CommitId],
    params: DiffParams,
    mask: Mask,
    memory: MemoryChanges,
    *,
    is_one_life: bool,
) -> PythonChanges:
    from relive.inspection.python.branches import asked_branch

    busy = memory.by_process()
    with contextlib.ExitStack() as stack:
        asked = [
            stack.enter_context(asked_branch(settings, store, commit, params.process, mask, busy))
            for commit in ids
        ]
        return _values_of_one_life(asked, params) if is_one_life else _values(asked, params)


def _values_of_one_life(asked: Sequence[AskedBranch], params: DiffParams) -> PythonChanges:
    """All values, of which only those are told that differ, with some that happen to be among the same sums."""
    with ThreadPoolExecutor(len(asked)) as pool:  # each in a branch of its own
        before, after = pool.map(partial(_sums, limit=params.limit), asked)
        is_whole = before.is_whole and after.is_whole
        if before.count != after.count and not is_whole:  # as many of both
            most = min(before.count, after.count)
            before, after = pool.map(partial(_sums, most=most, limit=2 * params.limit), asked)
        among = [n for n, pair in enumerate(zip(before.sums, after.sums, strict=True)) if len({*pair}) > 1]
        summed = [None if is_whole else one.count for one in (before, after)]
        old, new = pool.map(partial(_values_among, among, limit=params.limit), asked, summed)
    gone = old.values.keys() - new.values.keys()
    return PythonChanges(
        process=new.process,
        changes=_changes(old, new, is_whole=is_whole),
        compared=before.count - len(gone),
        cut=any(one.cut for one in (before, after, old, new)),
    )


def _sums(one: AskedBranch, *, most: int = _MOST_SUMMED, limit: float) -> PythonSums:
    return one.sums(depth=_DEPTH, most=most, limit=limit)


def _values_among(among: list[int], one: AskedBranch, summed: int | None, *, limit: float) -> PythonValues:
    return one.values_among(among, summed=summed, depth=_DEPTH, most=_MOST_VALUES, limit=limit)


def _values(asked: Sequence[AskedBranch], params: DiffParams) -> PythonChanges:
    old, new = (one.values(depth=_DEPTH, most=_MOST_VALUES, limit=params.limit) for one in asked)
    return PythonChanges(
        process=new.process,
        changes=_changes(old, new, is_whole=True),
        compared=len(old.values.keys() & new.values.keys()),
        cut=old.cut or new.cut,
    )


def _changes(old: PythonValues, new: PythonValues, *, is_whole: bool) -> list[FieldChange]:
    """``is_whole``: all values were walked by; else one that only one commit has was perhaps just not come to in the other."""
    from relive.inspection.aliases import with_moved_objects
    from relive.inspection.state_changes import mapping_changes, near_first

    changes = mapping_changes(*with_moved_objects(old.values, new.values))
    if not is_whole or max(len(old.values), len(new.values)) >= _MOST_VALUES:
        changes = [one for one in changes if one.before is not None and one.after is not None]
    return near_first(changes)
