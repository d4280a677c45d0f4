"""How often a service is committed by the clock, as a value: what was asked for, what it is, and why."""

from __future__ import annotations

from enum import StrEnum

from relive.model.quantities import duration, size
from relive.model.value import Value

__all__ = ["Brake", "PaceState"]


_UNUSUAL = 1.5  # times the expected pause


class Brake(StrEnum):
    """What keeps the clock from its next commit.

    STORE: the one before is not durable yet; PAUSES: the service would stand still for more than its share of the time; BUDGET: the
    store would grow by more than its bytes an hour; SERVICE: commits would cost the service more than their share of its time.
    What holds for the same moment is counted for the first of them.
    """

    STORE = "store"
    PAUSES = "pauses"
    BUDGET = "budget"
    SERVICE = "service"


class PaceState(Value):
    """As an agent writes it down for others.

    Attributes:
        wanted_s: seconds between two commits, as asked for.
        actual_s: seconds as it is, for what ``slowed_by`` says; None there: as asked for.
        share: of the time, 0 to 1, for which the service may stand still; None: no cap.
        expected_us: microseconds for which the next commit would stop the service; None: not known yet.
        basis: from what that is estimated.
        last_us: for which the last commit stopped it; None: there was none.
        limit_us: expected pauses above it are not taken by the clock; None: all are.
        is_held: none is taken by the clock, since the next one's pause is expected above the limit.
        budget: bytes an hour by which the store may grow; None: no cap.
        bytes: by which the last commit had it grow; durable_us: how long that took by the clock. None: there was none.
        cost_share: of the service's time, 0 to 1, that commits may cost it; None: no cap.
        cost_us: microseconds that the last commit cost it, at most; None: not known.
        left_out: commits that were due and not taken since this start of the service, by what kept the clock from them.
        micro: micro-commits are wanted; None: not known, or this host has none.
        full_because: why the last commit was a full one, though micro-commits are wanted; None: it was none, or they are not.
    """

    wanted_s: float | None
    actual_s: float | None
    share: float | None
    expected_us: int | None
    basis: str
    limit_us: int | None
    is_held: bool
    last_us: int | None = None
    slowed_by: Brake | None = None
    budget: int | None = None
    bytes: int | None = None
    durable_us: int | None = None
    cost_share: float | None = None
    cost_us: int | None = None
    left_out: dict[Brake, int] = {}
    micro: bool | None = None
    full_because: str | None = None

    def notes(self, name: str) -> list[str]:
        """What a reader has to know of it, in sentences; none where all is as asked for."""
        return [*self._of_the_clock(name), *self._of_full_commits()]

    def _of_full_commits(self) -> list[str]:
        if self.full_because is None:
            return []
        return [f"The last commit was a full one, not a micro-commit: {self.full_because}."]

    def _of_the_clock(self, name: str) -> list[str]:
        if self.is_held:
            return [
                f"Not committed by the clock: a commit would stop it for {duration(self.expected_us)} ({self.basis}), "
                f"and --pause-limit is {duration(self.limit_us)}. `relive commit {name}` takes one all the same."
            ]
        if self.slowed_by is None or self.actual_s is None:
            return []
        often = f"Committed every {duration(self.actual_s * 1e6)}"
        if self.wanted_s is not None:
            often += f", not every {duration(self.wanted_s * 1e6)}"
        return [f"{often}: {self._reason(self.slowed_by)}.{self._counted()}"]

    def _reason(self, brake: Brake) -> str:
        match brake:
            case Brake.STORE:
                return f"a commit takes {duration(self.durable_us)} until it is durable"
            case Brake.PAUSES:
                share = f"{(self.share or 0) * 100:g} %"
                shorter = " (--micro has commits that stop it for less)" if self.micro is False else ""
                return f"{self._stopping()}, and --pause-share is {share}{shorter}"
            case Brake.BUDGET:
                grown = "the last commit" if self.bytes is None else f"the last commit of {size(self.bytes)}"
                return f"{grown} counts against --budget, which is {size(self.budget or 0)}/h"
            case Brake.SERVICE:
                share = f"{(self.cost_share or 0) * 100:g} %"
                return (
                    f"the last commit cost it {duration(self.cost_us)} of its time, and --budget is {share}"
                )

    def _stopping(self) -> str:
        """The last pause is what the clock waits for, mostly as long as any."""
        if self.last_us is not None and self.last_us > _UNUSUAL * (self.expected_us or 0):
            return f"the last commit stopped it for {duration(self.last_us)}"
        return f"each commit stops it for {duration(self.expected_us)}"

    def _counted(self) -> str:
        count = sum(self.left_out.values())
        return f" Left out: {count} commit{'s' if count != 1 else ''}." if count else ""
