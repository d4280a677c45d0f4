"""The border of a capsule that is being started: raised by process 1, for itself and all that come of it."""

from __future__ import annotations

from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.errors import HostIncapable
from relive.kernel.tapprograms import TapMaps
from relive.model.capsule import BorderFacts, CapsuleSpec, EgressWay
from relive.model.value import Value
from relive.sandbox.border import prepare_tap, raise_border, raise_tap

__all__ = ["SEALED", "RaisedBorder", "join_behind_border"]

SEALED = "the store is sealed, and such recordings are not; `--egress beside` has them all the same"
"""Why it is not recorded where nothing was said of it."""


class RaisedBorder(Value):
    """What process 1 says of it; ``unrecorded``: why there is none, where there need not be one."""

    border: BorderFacts | None = None
    unrecorded: str | None = None


def join_behind_border(spec: CapsuleSpec, group: MemoryGroup | None) -> RaisedBorder:
    """Have the caller join the group whose memory is limited, if there is one, and record what it asks of others as asked.

    Raises:
        HostIncapable, ToolMissing: it cannot be recorded, and must be.
    """
    is_beside = spec.record_egress and spec.egress is EgressWay.BESIDE
    maps: TapMaps | None = None
    unrecorded: str | None = None
    try:
        maps = prepare_tap() if is_beside else None  # else the ring would be of the service's memory
    except HostIncapable as error:
        unrecorded = _why(spec, error)
    if group is not None:
        group.join()
    try:
        if maps is not None:
            return RaisedBorder(border=raise_tap(maps))
    except HostIncapable as error:
        unrecorded = _why(spec, error)
    if spec.record_egress and not is_beside:
        return RaisedBorder(border=raise_border())
    return RaisedBorder(unrecorded=unrecorded)


def _why(spec: CapsuleSpec, error: HostIncapable) -> str:
    """Raises the error where it must be recorded."""
    if not spec.egress_if_possible:
        raise error
    return error.cause or str(error)
