"""What is asked of a bisection, and whether that can be meant."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from relive.errors import UsageError
from relive.model.expectation import parse_expectation
from relive.operations.grammars import written_as
from relive.operations.operation import Params

__all__ = ["TIMES", "BisectParams", "check_params"]

TIMES = 10  # that a commit of a curve is probed
_MOST_OF_A_CURVE = 10_000  # probes


class BisectParams(Params):
    """Between which commits is looked, and what is asked of each."""

    good: str | None = Field(
        default=None,
        max_length=400,
        description="A commit in which it is not so; with replay: the first of that start of the service",
    )
    bad: str | None = Field(
        default=None,
        max_length=400,
        description="A later commit of the same service in which it is so; with replay: the last before the incident",
    )
    run: str | None = Field(
        default=None,
        min_length=1,
        max_length=64 << 10,
        description="A shell command, run in a branch of each commit: status 0 is good, 125 skips it, others to 124 are bad",
    )
    when: str | None = Field(
        default=None,
        min_length=1,
        max_length=64 << 10,
        description="A Python expression, evaluated in the service: bad where it is true",
    )
    http: str | None = Field(
        default=None,
        max_length=8000,
        description="A request to the service, such as /rates or 'POST /refresh'; good where its answer is as expected",
    )
    expect: Annotated[str | None, written_as(parse_expectation)] = Field(
        default=None,
        max_length=4000,
        description="With http: \"status == 200 and 'eur' in body\" (also seconds, headers, json); without: status < 500",
    )
    replay: int | None = Field(
        default=None,
        ge=1,
        description="Send the failing request of this incident: bad where it fails as recorded",
    )
    flaky: bool = Field(
        default=False,
        description="A commit may say good once and bad another time: find where the rate changes",
    )
    confidence: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="With flaky: how probable a commit has to be before it is told",
    )
    most: int = Field(
        default=200, ge=2, le=10_000, description="At most so many probes, each in a branch of its own"
    )
    further: int = Field(
        default=4,
        ge=0,
        le=1000,
        description="Commits elsewhere that are looked at, should it have changed more than once",
    )
    curve: int | None = Field(
        default=None,
        ge=2,
        le=1000,
        description="Then probe so many commits again and again, and show how probable it is from each of them",
    )
    times: int | None = Field(
        default=None, ge=1, le=1000, description="With curve: probes of each of its commits; without: 10"
    )
    process: int | None = Field(
        default=None,
        ge=1,
        le=1 << 22,
        description="With when: the process that is asked, by its number inside; without: as `relive eval` chooses",
    )
    jobs: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Probes at one time, also those that are likely next; 1: one after the other; default: one, and one for "
        "each CPU that has nothing to do, with a curve for each CPU",
    )
    limit: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Seconds for a probe, after which it failed; without: 10, or the replay's",
    )


def check_params(params: BisectParams) -> None:
    """Raises UsageError where the options contradict each other, or say too little."""
    asked = [name for name in ("run", "when", "http", "replay") if getattr(params, name) is not None]
    if len(asked) != 1:
        raise UsageError(
            "what is to be asked of each commit?"
            if not asked
            else f"{' and '.join(asked)} cannot be asked together",
            remedy="give one of: a command (run), an expression (when), a request (http), an incident (replay)",
        )
    if params.expect is not None and params.http is None:
        raise UsageError(
            "an expectation is of an answer", remedy="name the request (http), or leave expect out"
        )
    if params.process is not None and params.when is None:
        raise UsageError(
            "a process is asked an expression", remedy="name the expression (when), or leave process out"
        )
    if params.times is not None and params.curve is None:
        raise UsageError(
            "times is how often each commit of a curve is probed", remedy="add curve, or leave times out"
        )
    if (params.curve or 0) * (params.times or TIMES) > _MOST_OF_A_CURVE:
        raise UsageError(
            f"{params.curve} commits, {params.times or TIMES} times each, are too many probes",
            cause=f"there are at most {_MOST_OF_A_CURVE}",
            remedy="ask fewer commits (curve), or each less often (times)",
        )
    if params.replay is None and (params.good is None or params.bad is None):
        raise UsageError(
            "between which commits?",
            remedy="name one in which it is not so (good) and a later one in which it is (bad); `relive log` lists them",
        )
