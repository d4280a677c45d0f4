"""The promise that nothing of the recorder is raised into the service."""

import functools
from typing import Any, Callable, Optional, TypeVar

from relive_recorder.recorder import recorder

__all__ = ["attempt", "guarded"]

Result = TypeVar("Result")


def attempt(work: Callable[..., Result], *given: Any) -> Optional[Result]:
    """Its result; None when it failed, and then the recorder is off."""
    try:
        return work(*given)
    except Exception as fault:
        recorder.switch_off(fault)
        return None


def guarded(work: Callable[..., Result]) -> Callable[..., Optional[Result]]:
    """As a decorator: ``attempt`` at every call."""

    @functools.wraps(work)
    def wrapper(*given: Any, **named: Any) -> Optional[Result]:
        try:
            return work(*given, **named)
        except Exception as fault:
            recorder.switch_off(fault)
            return None

    return wrapper
