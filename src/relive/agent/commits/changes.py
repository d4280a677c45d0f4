"""What commits follow where they do not follow the clock: what a service does, or which code it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from relive.agent.commits.activity import Activity, look
from relive.agent.commits.deployment import Deployments, look_at_code
from relive.model.commit_policy import Policy

__all__ = ["Changes", "changes_of"]


class Changes(Protocol):
    """Its methods are called in other threads than the event loop's, one at a time."""

    def has_changed(self, seconds: float) -> bool:
        """Something has changed since the last commit; asked again after so many seconds."""

    def committed(self) -> None:
        """A commit was taken; what changes from now on is not in it."""


def changes_of(policy: Policy, lead: Callable[[], int], recordings: Sequence[Path]) -> Changes:
    """Those that the policy has commits follow.

    Args:
        lead: gives the service's first process. recordings: of what crosses its border.
    """
    if policy.on_deploy:
        return Deployments(lambda: look_at_code(lead()))
    return Activity(lambda: look(lead(), recordings))
