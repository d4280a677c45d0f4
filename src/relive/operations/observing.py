"""What is asked alike of a service that Relive starts, and of one that runs already: when to commit it, what to record of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from relive.config import Settings
from relive.errors import HostIncapable, UsageError
from relive.model.budget import parse_budget
from relive.model.capsule import CaptureWay, EgressWay
from relive.model.commit_policy import Policy, parse_every
from relive.operations.micro_choice import choose_micro
from relive.operations.operation import Params

if TYPE_CHECKING:
    from relive.checkpoint.micro_hindrance import MicroHindrance

__all__ = [
    "BUDGET",
    "CAPTURE",
    "EGRESS",
    "EVERY",
    "LISTEN",
    "MICRO",
    "PAUSE_LIMIT",
    "PAUSE_SHARE",
    "RECORD_EGRESS",
    "ObservedParams",
    "choose_egress",
    "policy_of",
]

EVERY = (
    "When to commit: a time such as 30s or 10ms, or change (when it has done something), deploy (when its code has changed), "
    "request, start, never"
)
PAUSE_LIMIT = "Seconds; a commit that is expected to stop it for longer is not taken by the clock; 0: each is; default: 1"
PAUSE_SHARE = "Percent of the time that it may stand still for commits by the clock, which come seldomer then; default: 1"
BUDGET = (
    "What its commits may cost: bytes an hour by which the store grows, such as 2GB/h, a share of its time, such "
    "as 5%, or both with a comma; the clock commits seldomer then; default: none"
)
MICRO = (
    "Take micro-commits, which stop it only while what has changed is copied, where they are certain to be right; "
    "default: the setting micro, or else with --every request, change, and times shorter than 1s"
)
LISTEN = "ADDR:PORT at which the service listens, or with --upstream a recording proxy for it"
CAPTURE = (
    "How its requests are recorded: from the packets of its port, beside their way, or by a proxy in it; default: beside, where "
    "nothing has to hold them and this host can"
)
RECORD_EGRESS = "Record at its border what the service asks of others, in any language; default: beside its way, where the host can"
EGRESS = "How that is recorded: through a recorder, or from copies of the packets, beside their way"


class ObservedParams(Params):
    """How a service is observed."""

    name: str | None = Field(default=None, description="What it is called; default: its own name")
    every: str = Field(default="30s", description=EVERY)
    pause_limit: float | None = Field(
        default=None,
        ge=0,
        description=PAUSE_LIMIT,
    )
    pause_share: float | None = Field(
        default=None,
        ge=0.001,
        le=100,
        description=PAUSE_SHARE,
    )
    budget: str | None = Field(default=None, description=BUDGET)
    micro: bool | None = Field(default=None, description=MICRO)
    listen: str | None = Field(default=None, description=LISTEN)
    upstream: str | None = Field(default=None, description="Where the proxy reaches it")
    capture: CaptureWay | None = Field(default=None, description=CAPTURE)
    hang_after: float | None = Field(
        default=30.0, ge=0.1, description="Seconds without an answer that count as a hang"
    )
    log_pattern: list[str] = Field(
        default=[], description="A line of its output that matches this is a failure; may be given again"
    )


class EgressChoice(NamedTuple):
    """What is to become of what a service asks of others, as ``CapsuleSpec`` has it."""

    record_egress: bool
    egress: EgressWay
    egress_if_possible: bool


def choose_egress(
    is_recorded: bool | None, way: EgressWay | None, *, is_sealed: bool = False
) -> EgressChoice:
    """By what was said of it, None: nothing; raises UsageError where a way is said of what is not to be recorded.

    ``is_sealed``: the store is, and what is committed lies nowhere in clear; recordings would.
    """
    if is_recorded is False:
        if way is not None:
            raise UsageError(
                f"--egress {way} and --no-record-egress exclude each other",
                remedy="give one of them, or neither",
            )
        return EgressChoice(False, EgressWay.BESIDE, egress_if_possible=False)
    if is_recorded is None and way is None:
        return EgressChoice(not is_sealed, EgressWay.BESIDE, egress_if_possible=True)
    return EgressChoice(True, way or EgressWay.THROUGH, egress_if_possible=False)


def policy_of(
    settings: Settings, params: ObservedParams, full_because: Callable[[], str | None] | None = None
) -> Policy:
    """When and how it is committed.

    Args:
        full_because: tells why no micro-commits can be taken of it; by default what keeps this host from them.

    Raises:
        UsageError: as ``parse_every`` and the limits of a policy.
        HostIncapable: micro-commits are asked for, and this host has none.
    """
    if params.micro:
        _refuse_where_none_are(settings)
    budget = settings.budget if params.budget is None else params.budget
    # Pauses are part of what a share of the time is for.
    share = 100.0 if parse_budget(budget).share is not None else settings.pause_share
    policy = parse_every(params.every).limited(
        settings.pause_limit if params.pause_limit is None else params.pause_limit,
        share if params.pause_share is None else params.pause_share,
        budget,
    )
    return choose_micro(
        policy,
        params.micro,
        setting=settings.micro,
        hindrance=full_because or (lambda: _of_this_host(settings)),
    )


def _of_this_host(settings: Settings) -> str | None:
    found = _hindrance(settings)
    return str(found) if found is not None else None


def _refuse_where_none_are(settings: Settings) -> None:
    found = _hindrance(settings)
    if found is not None:
        raise HostIncapable(
            "no micro-commits can be taken on this host",
            cause=found.cause,
            remedy=f"{found.remedy}; or leave --micro out: each commit is a full one then",
        )


def _hindrance(settings: Settings) -> MicroHindrance | None:
    from relive.checkpoint.criu import CriuTools
    from relive.checkpoint.micro_hindrance import micro_hindrance

    return micro_hindrance(CriuTools(settings.tools_path))
