"""When a service is committed without being asked, as a value, and as users write it (``--every``)."""

from __future__ import annotations

import math
import re

from relive.errors import UsageError
from relive.model.budget import parse_budget
from relive.model.value import Value

__all__ = ["Every", "Policy", "parse_every"]

_EVERY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LOOK = 1.0  # [s] between two looks whether a service has done anything


class Policy(Value):
    """When commits are taken without being asked for, and how.

    Attributes:
        at_start: once, when the service is ready.
        seconds: again and again; None: not by the clock.
        on_change: only when the service has done something since the last commit; ``seconds`` is between two looks.
        on_deploy: only when another revision of its code is seen; ``seconds`` as above.
        each_request: before each request is handed on.
        pause_limit: seconds; a commit that would stop the service for longer is not taken, at the start or by the clock;
            None: each is.
        pause_share: of the time, 0 to 1, for which the service may stand still; the clock waits so long; None: no cap.
        budget: bytes an hour by which the store may grow; the clock waits so long; None: no cap.
        cost_share: of the service's time, 0 to 1, that commits may cost it (``agent.commits.service_cost``); as above.
        micro: micro-commits are taken where they are certain to be right; None: as the agent's settings say.
        full_because: why they are not taken on this host, though so many commits would be; None: they are, or nobody wants them.
    """

    at_start: bool
    seconds: float | None = None
    on_change: bool = False
    on_deploy: bool = False
    each_request: bool = False
    pause_limit: float | None = None
    pause_share: float | None = None
    budget: int | None = None
    cost_share: float | None = None
    micro: bool | None = None
    full_because: str | None = None

    @property
    def interval(self) -> float | None:
        """Seconds between two commits by the clock; None: it does not decide alone, or not at all."""
        return None if self.on_change or self.on_deploy else self.seconds

    def limited(self, limit_s: float, share_percent: float, budget: str) -> Policy:
        """With these limits, as users write them: 0 seconds, 100 percent and "none" mean none.

        A share of the time in the budget has pauses in it: then ``share_percent`` is to be 100 where it was not asked for, too.

        Raises:
            UsageError: the budget is none.
        """
        limits = parse_budget(budget)
        return self.model_copy(
            update={
                "pause_limit": limit_s or None,
                "pause_share": share_percent / 100 if share_percent < 100 else None,
                "budget": limits.bytes,
                "cost_share": limits.share,
            }
        )


Every = str
"""What ``--every`` takes: "30s", "500ms", "2m", "change", "deploy", "request", "start" or "never"."""


def parse_every(text: Every) -> Policy:
    """Read ``--every``; raises UsageError."""
    if text == "never":
        return Policy(at_start=False)
    if text == "start":
        return Policy(at_start=True)
    if text == "request":
        return Policy(at_start=True, each_request=True)
    if text == "change":
        return Policy(at_start=True, seconds=_LOOK, on_change=True)
    if text == "deploy":
        return Policy(at_start=True, seconds=_LOOK, on_deploy=True)
    match = _EVERY.fullmatch(text)
    seconds = float(match["number"]) * _UNITS[match["unit"]] if match is not None else 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(
            f"--every cannot be {text!r}",
            remedy="write a time such as 30s or 500ms, or change, deploy, request, start, never",
        )
    return Policy(at_start=True, seconds=seconds)
