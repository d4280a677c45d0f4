"""The addresses of a recorded fatal signal as they would be in another process, which has the same files elsewhere (ASLR)."""

from __future__ import annotations

from collections.abc import Sequence

from relive.kernel.procfs import Mapping
from relive.model.outcome import Fault

__all__ = ["relocated"]


def relocated(fault: Fault, recorded: Sequence[Mapping], here: Sequence[Mapping]) -> Fault:
    """The fault with its instruction and the calls that led there, where ``here`` has the same bytes of the same files.

    The address of the fault itself stays: of data only its class is compared. What lies in no file, or in none that is mapped
    here, cannot be compared: ``place``, or ``callers``, is None then.

    Args:
        recorded, here: mappings of the process that failed, and of the one it is compared with.
    """

    def moved(address: int) -> int | None:
        return _moved(address, recorded, here)

    place = fault.place
    instruction = moved(place.instruction) if place is not None else None
    if place is None or instruction is None:
        return fault.model_copy(update={"place": None, "callers": None})
    callers = [moved(address) for address in fault.callers or ()]
    return fault.model_copy(
        update={
            "place": place.model_copy(update={"instruction": instruction}),
            "callers": None if fault.callers is None or None in callers else callers,
        }
    )


def _moved(address: int, recorded: Sequence[Mapping], here: Sequence[Mapping]) -> int | None:
    there = next((one for one in recorded if one.start <= address < one.end and one.path), None)
    if there is None:
        return None
    position = there.offset + address - there.start
    for one in here:
        if one.path == there.path and one.offset <= position < one.offset + one.end - one.start:
            return one.start + position - one.offset
    return None
