"""Where a connection that the commit holds stood among its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from relive.protocols.call import Call
from relive.protocols.pool import Pool
from relive.protocols.session import Act, Resume
from relive.protocols.timing import rest_of, sends

__all__ = ["DialogueProgress", "standing"]


@dataclass(slots=True)
class DialogueProgress:
    """What had happened by then.

    Attributes:
        past: calls that had been asked, whole.
        half: the call of which a part had been asked, None without one.
        given: bytes of its answer that the service has already.
        acts: what remains to be done for the past ones: the rest of answers, ends of the connection.
    """

    past: list[Call] = field(default_factory=list)
    half: Call | None = None
    given: int = 0
    acts: list[Act] = field(default_factory=list)


def standing(
    calls: Iterable[Call], where: Resume, pool: Pool, finish: Callable[[Call], list[Act]]
) -> DialogueProgress:
    """Past calls are used up.

    Args:
        finish: what follows the last byte of a call's answer, such as the end of the connection.
    """
    found = DialogueProgress()
    for call in calls:
        if call.up[1] <= where.up and not call.extra.get("cut"):
            found.past.append(call)
            pool.use_up(call)
            given = max(0, where.down - call.down[0])
            unasked = bool(call.extra.get("push"))
            found.acts += sends(rest_of(call.pieces, given), unasked=unasked) + finish(call)
        elif call.up[0] < where.up:
            found.half, found.given = call, max(0, where.down - call.down[0])
    return found
