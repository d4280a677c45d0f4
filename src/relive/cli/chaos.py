"""How what ``relive replay --chaos`` found looks on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from relive.model.chaos import Chaos

__all__ = ["chaos_lines"]

_DELAYS = 10


def chaos_lines(found: Chaos) -> Iterator[str]:
    """For people."""
    what = f"incident {found.incident}" if found.incident is not None else f"request {found.request}"
    yield f"{what} of {found.service}, from commit {found.commit[:10]}: {found.sentence}"
    if found.harmed is not None:
        yield f"  the harm was done by the nearest commit, {found.harmed[:10]}: from there it fails each time"
    yield f"  {found.tried} schedules, {found.replays} replays in {found.seconds:.1f} s"
    if found.seed is None:
        return
    yield f"  seed {found.seed}: {found.varied}"
    yield f"  it ended so: {found.result}"
    if found.delays:
        yield "  this is enough:" if found.narrowed else "  its delays:"
    for one in found.delays[:_DELAYS]:
        yield f"    {one.ms:g} ms {one.at}"
    if len(found.delays) > _DELAYS:
        yield f"    and {len(found.delays) - _DELAYS} more (--json)"
    if found.swap is not None:
        more = f" ({found.swap.more} other pairs changed places, too)" if found.swap.more else ""
        yield f"  what changed places{more}:"
        yield f"    usually  {found.swap.first}"
        yield f"    before   {found.swap.then}"
        yield "    with it the other way round"
    if found.why_not:
        yield f"  not known: {found.why_not}"
    yield f"  run {found.run}.1 ended as usual, {found.run}.2 so: `relive divergence {found.run}.1 {found.run}.2`"
    is_nearest = found.incident is not None and found.harmed is None
    where = found.incident if is_nearest else f"{found.commit[:10]} --request {found.request}"
    yield f"  again: `relive replay {where} {found.options}`"
    if found.incident is not None and not any(found.plain):
        commit = f" --commit {found.commit[:10]}" if found.harmed is not None else ""
        yield f"  as a test: `relive keep {found.incident}{commit} --expect 'status == 200' {found.options}`"
