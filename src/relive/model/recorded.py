"""Reading a value that a recorder wrote as JSON: it may be of any size and content, since what it is read from may be hostile."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from relive.errors import RecordingCorrupt, reason_of
from relive.model.value import Value

__all__ = ["read_recorded"]

_V = TypeVar("_V", bound=Value)


def read_recorded(kind: type[_V], data: bytes, most_bytes: int, what: str) -> _V:
    """Read a value of ``kind`` from at most so many bytes.

    Args:
        what: the error's subject, such as "an error package".

    Raises:
        RecordingCorrupt: it is none, or longer.
    """
    if len(data) > most_bytes:
        raise RecordingCorrupt(f"{what} cannot be read", cause=f"it has {len(data)} bytes")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise RecordingCorrupt(
            f"{what} cannot be read", cause=f"{place}: {reason_of(first['msg'])}"
        ) from None
