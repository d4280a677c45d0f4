"""Whether micro-commits are taken of a service: as asked, as set, or else where it is committed so often that pauses matter."""

from __future__ import annotations

from collections.abc import Callable

from relive.model.commit_policy import Policy

__all__ = ["choose_micro", "of_containers", "told_full"]

_MICRO_BELOW = 1.0  # [s] between two commits by the clock


def choose_micro(
    policy: Policy, asked: bool | None, *, setting: bool | None, hindrance: Callable[[], str | None]
) -> Policy:
    """The policy with ``micro`` said, and ``full_because`` where they would be taken but for the hindrance.

    Args:
        asked: at its start; None: nothing was said. setting: for all services; None: nothing is set.
        hindrance: tells why none can be taken here, None where they can; called only where they are wanted and nobody asked.
    """
    if asked is not None:
        return policy.model_copy(update={"micro": asked})
    if not (_is_frequent(policy) if setting is None else setting):
        return policy.model_copy(update={"micro": False})
    why = hindrance()
    return policy.model_copy(update={"micro": why is None, "full_because": why})


def _is_frequent(policy: Policy) -> bool:
    is_quick = policy.interval is not None and policy.interval < _MICRO_BELOW
    return policy.each_request or policy.on_change or is_quick


def of_containers() -> str:
    """What hinders them there."""
    return "a container has none"


def told_full(because: str) -> str:
    """A sentence for whoever starts a service that is committed so."""
    return f"Each commit is a full one, no micro-commit: {because}."
