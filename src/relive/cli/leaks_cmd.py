"""``relive leaks``: what a Python service keeps more and more of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import size, when
from relive.operations.leaking import Leaks, LeaksParams
from relive.operations.leaking import leaks as compare

__all__ = ["leaks"]


def leaks(
    refs: Annotated[
        list[str],
        typer.Argument(
            help="Three commits of one service or more, earliest first: id, tag, NAME, or NAME@{2 minutes ago}"
        ),
    ],
    process: Annotated[
        int | None,
        typer.Option(
            help="Whose objects; without: the Python process that has loaded most of the service",
            min=1,
        ),
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds for each question in a branch", max=300)] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Tell what a Python service keeps more and more of, from three commits or more

    Objects are counted in a sealed branch of each commit, after garbage was collected. Told are types and collections of which
    each commit has more than the one before, entries that the first lacks and all later have, and through what they are held.
    What only grew need be no leak: a cache that fills does so, too.
    """
    terminal = Terminal(as_json=as_json)
    params = LeaksParams(refs=refs, process=process, limit=limit)
    found = compare(load_settings(), params, terminal)
    terminal.answer(found, lambda: "\n".join(_lines(found)))


def _lines(found: Leaks) -> Iterator[str]:
    yield f"{found.service}: {len(found.commits)} commits"
    if not found.same_life:
        yield "They are of different starts of the service."
    for one in found.commits:
        yield f"  {one.id[:10]}  {when(one.taken_wall_ns)}  {one.objects:,} objects, {size(one.size)}"
    yield ""
    if not found.types and not found.collections:
        yield "Nothing has only grown."
        return
    if found.collections:
        yield "collections with more entries each time"
    for collection in found.collections:
        yield f"  {collection.path}  {collection.type}: {_row(collection.counts)}"
        if collection.kept:
            yield f"    stayed: {', '.join(collection.kept)}"
    if found.types:
        yield "types with more objects each time"
    for kind in found.types:
        gained = size(kind.sizes[-1] - kind.sizes[0])
        yield f"  {kind.name}: {_row(kind.counts)}, {gained} more"
        if kind.held_by is not None:
            yield f"    held by {kind.held_by}"
    if found.left_out:
        yield f"and {found.left_out} that grew less"


def _row(counts: Sequence[int]) -> str:
    return " -> ".join(f"{count:,}" for count in counts)
