"""How probable a failure is from each commit, drawn with letters: time goes down, probability to the right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relive.model.quantities import when
from relive.operations.bisect_result import Bisection, CurvePoint, RequestBetween

__all__ = ["curve_lines"]

_WIDTH = 41  # [characters] of a scale from 0 to 100 %
_INDENT = 28  # [characters] before it
_REQUESTS = 5  # of a change


def curve_lines(found: Bisection) -> Iterator[str]:
    """A line for each commit: where its rate lies (``o``) and its bounds at 95 %; requests stand where it changes."""
    yield "How probable it is from each commit (o), and between which bounds at 95 %:"
    yield f"{'':{_INDENT}}0 %{'50':>{_WIDTH // 2 - 2}}{'100':>{_WIDTH // 2}}"
    between = _requests(found)
    for one in found.curve:
        if one.number in between:
            yield from _request_lines(between[one.number])
        yield f"  {one.commit[:10]} {when(one.taken_wall_ns)[11:]:<{_INDENT - 13}}{_bar(one)}  {one.bad} of {one.probes}"


def _requests(found: Bisection) -> Mapping[int, Sequence[RequestBetween]]:
    """By the first commit of the curve that has them behind it."""
    drawn = [one.number for one in found.curve]
    behind = {
        min((at for at in drawn if at >= jump.after.number), default=-1): jump.requests
        for jump in found.jumps
    }
    return {at: requests for at, requests in behind.items() if requests}


def _request_lines(requests: Sequence[RequestBetween]) -> Iterator[str]:
    for one in requests[:_REQUESTS]:
        answer = one.status if one.status is not None else "no answer"
        yield f"{'':{_INDENT}}^ {one.number}  {one.method} {one.target}  {answer}"
    if len(requests) > _REQUESTS:
        yield f"{'':{_INDENT}}^ and {len(requests) - _REQUESTS} more"


def _bar(one: CurvePoint) -> str:
    least, at, most = (round(share * (_WIDTH - 1)) for share in (one.least, one.rate, one.most))
    return "".join(
        "o" if place == at else "-" if least <= place <= most else " " if place else "|"
        for place in range(_WIDTH)
    )
