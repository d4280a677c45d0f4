"""Randomness: ``os.urandom``, and so ``secrets``, ``uuid4`` and ``random.SystemRandom``; and ``uuid1``, which the C library makes.

Event ``random``: fields ``source`` (such as "os.urandom"), ``value`` (packed). Generators (``random``, ``random.Random()``,
numpy's) have their state in memory and so in the commit: they give the same numbers again by themselves.
"""

import os
from typing import Any

from relive_recorder.calls import next_reading
from relive_recorder.imports import when_imported
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.values import pack, unpack

__all__ = ["install"]

_LONGEST = 4096  # [bytes] of one draw that is kept


def install() -> None:
    """Replace ``os.urandom``, also where ``random`` has it under a name of its own."""
    os.urandom = _urandom
    when_imported("random", _change_random)
    when_imported("uuid", _change_uuid)


_real_urandom = os.urandom


def _urandom(size: int) -> bytes:
    """os.urandom"""
    mode = recorder.mode()
    if mode == REPLAY:
        kept = next_reading("random", "os.urandom")
        value = unpack(kept) if kept is not None else None
        if type(value) is not bytes or len(value) != size:
            value = _real_urandom(size)
    else:
        value = _real_urandom(size)
    if mode in (RECORD, REPLAY) and size <= _LONGEST:
        recorder.emit("random", {"source": "os.urandom", "value": pack(value)})
    return value


def _change_random(module: Any) -> None:
    if getattr(module, "_urandom", None) is _real_urandom:
        module._urandom = _urandom


def _change_uuid(module: Any) -> None:
    real = getattr(module, "_generate_time_safe", None)
    if real is None:
        return

    def generate_time_safe() -> Any:
        mode = recorder.mode()
        kept = next_reading("random", "uuid.uuid1") if mode == REPLAY else None
        value = unpack(kept) if kept is not None else None
        if type(value) is not tuple or len(value) != 2:
            value = real()
        if mode in (RECORD, REPLAY):
            recorder.emit("random", {"source": "uuid.uuid1", "value": pack(value)})
        return value

    module._generate_time_safe = generate_time_safe
