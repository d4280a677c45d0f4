"""How often a service is committed by the clock, as a value: what was asked for, what it is, and why."""

from __future__ import annotations

from relive.model.quantities import duration
from relive.model.value import Value

__all__ = ["PaceState"]


class PaceState(Value):
    """As an agent writes it down for others.

    Attributes:
        wanted_s: seconds between two commits, as asked for.
        actual_s: seconds as it is, so that the service stands still for no more than its share of the time.
        share: that share, 0 to 1; None: no cap.
        expected_us: microseconds for which the next commit would stop the service; None: not known yet.
        basis: from what that is estimated.
        limit_us: expected pauses above it are not taken by the clock; None: all are.
        is_held: none is taken by the clock, since the next one's pause is expected above the limit.
    """

    wanted_s: float | None
    actual_s: float | None
    share: float | None
    expected_us: int | None
    basis: str
    limit_us: int | None
    is_held: bool

    def notes(self, name: str) -> list[str]:
        """What a reader has to know of it, in sentences; none where all is as asked for."""
        if self.is_held:
            return [
                f"Not committed by the clock: a commit would stop it for {duration(self.expected_us)} ({self.basis}), "
                f"and --pause-limit is {duration(self.limit_us)}. `relive commit {name}` takes one all the same."
            ]
        if (
            self.wanted_s is None
            or self.actual_s is None
            or self.share is None
            or self.actual_s <= self.wanted_s
        ):
            return []
        return [
            f"Committed every {duration(self.actual_s * 1e6)}, not every {duration(self.wanted_s * 1e6)}: each commit stops it for "
            f"{duration(self.expected_us)}, and --pause-share is {self.share * 100:g} %."
        ]
