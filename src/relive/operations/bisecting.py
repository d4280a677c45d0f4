"""Bisecting: between which two commits of a service something began, what was asked of it in between, and what it changed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from relive.bisection.curve import commits_of_curve
from relive.bisection.finding import Jumps, ProbesMade, find_jumps, find_rate_jumps, probe_again
from relive.bisection.judgement import Judged, Judgement
from relive.bisection.posterior import ProbeCounts, credible, rate
from relive.config import Settings
from relive.errors import RecordingError, ReliveError, RestoreFailed, StoreError, UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask
from relive.model.capsule import LifePaths
from relive.model.commit import CommitId
from relive.model.expectation import parse_expectation
from relive.model.incident import Incident
from relive.model.token_scope import Scope
from relive.operations.branches import inside_environment
from relive.operations.differences import CommitDifference, DiffWish, diff
from relive.operations.grammars import written_as
from relive.operations.operation import Effect, Faces, Operation, Result, Route, Tool, Wish
from relive.operations.progress import Progress, Silent
from relive.operations.targets import tend
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.store import Store
from relive.store.index import StoredCommit

__all__ = [
    "BISECT",
    "BisectWish",
    "BisectedCommit",
    "Bisection",
    "CurvePoint",
    "Jump",
    "RequestBetween",
    "Side",
    "bisect",
]

_LIMIT = 10.0  # [s] for a probe
_TIMES = 10  # that a commit of a curve is probed
_MOST_TOLD = 100  # requests of a jump, commits of a list
_MOST_OF_A_CURVE = 10_000  # probes
_REQUEST_LINE = re.compile(r"(?:([A-Z]{1,20}) +)?(/[\x21-\x7e]*)")


class BisectWish(Wish):
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
    limit: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Seconds for a probe, after which it failed; without: 10, or the replay's",
    )


class Side(Result):
    """Probes on one side of a jump: how many were bad, and the rate with its bounds at 95 %."""

    bad: int
    probes: int
    rate: float
    least: float
    most: float


class BisectedCommit(Result):
    """A commit that was probed, or, where rates are looked for, that the jump may be right before.

    Attributes:
        number: in the order of the commits, from 0.
        seen: what its last probe showed.
        probability: that the jump is right before it; None where each commit always says the same.
    """

    commit: CommitId
    number: int
    taken_wall_ns: int
    bad: int = 0
    good: int = 0
    skipped: int = 0
    failed: int = 0
    seen: str = ""
    probability: float | None = None


class CurvePoint(Side):
    """How probable it is from one commit."""

    commit: CommitId
    number: int
    taken_wall_ns: int


class RequestBetween(Result):
    """A request that the service took, or answered, between two commits; ``status`` None: it had no answer."""

    number: int
    method: str
    target: str
    status: int | None
    began_wall_ns: int


class Jump(Result):
    """Where it changed.

    Attributes:
        before, after: neighbours but for ``unjudged``, of which nobody knows on which side they are.
        begins: bad from ``after`` on; else it ended there.
        sides: from the jump before to this one, and from this one to the next; of rates and with a curve only.
        requests: the first hundred of ``request_count``; None where nobody recorded any, or they are of different starts.
        difference: what differs between the two; None where that cannot be told (``why_no_difference``).
    """

    before: BisectedCommit
    after: BisectedCommit
    unjudged: list[CommitId]
    begins: bool
    probability: float | None
    sides: tuple[Side, Side] | None
    requests: list[RequestBetween] | None
    request_count: int
    difference: CommitDifference | None
    why_no_difference: str | None


class Bisection(Result):
    """What was found.

    Attributes:
        question: what each commit was asked.
        commits: how many lie between good and bad, both included; lives: of how many starts of the service.
        probed: every commit that was probed, in their order.
        suspects: the fewest commits that hold the jump with the wished probability; of rates only.
        no_jump, two_jumps: probabilities that the rate does not change at all, and that it does so twice.
        why_not: why it could not be told, or not all; None where it was.
        curve: the commits that were probed again and again, in their order; empty where none was asked for.
    """

    service: str
    question: str
    commits: int
    lives: int
    probes: int
    failed: int
    jumps: list[Jump]
    probed: list[BisectedCommit]
    suspects: list[BisectedCommit]
    no_jump: float | None
    two_jumps: float | None
    why_not: str | None
    curve: list[CurvePoint]


def bisect(settings: Settings, wish: BisectWish, progress: Progress) -> Bisection:
    """Probe commits in sealed branches, one after the other, until it is known where it changed; secrets are masked.

    Raises:
        UsageError: what is asked for cannot be meant, the ends are not as said, or the predicate crashes or hangs.
        RefUnknown, RefAmbiguous, StoreError, IncidentUnknown: there is nothing to be asked.
    """
    _check(wish)
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(wish.replay) if wish.replay is not None else None
    line = _line(store, wish, incident)
    probe = _tolerant(_probe(settings, store, wish, incident), line)
    with progress.progress("probing", wish.most if wish.flaky else _expected(len(line), wish)) as done:
        if wish.flaky:
            found = find_rate_jumps(
                *(len(line), probe),
                confidence=wish.confidence,
                further=wish.further,
                most=wish.most,
                done=done,
            )
        else:
            found = find_jumps(len(line), probe, further=wish.further, most=wish.most, done=done)
    drawn: list[int] = []
    if wish.curve is not None:
        drawn = commits_of_curve(len(line), wish.curve, found.spans)
        times = wish.times or _TIMES
        with progress.progress("probing again", len(drawn) * times) as done:
            evidence = probe_again(found.evidence, drawn, probe, times=times, done=done)
        found = dataclasses.replace(found, evidence=evidence)
    return _bisection(settings, wish, line, found, drawn)


def _look_up(settings: Settings, wish: BisectWish) -> None:
    _check(wish)
    if wish.replay is not None:
        Incidents(settings.incidents).get(wish.replay)
    store = Store(settings.store)
    for ref in filter(None, (wish.good, wish.bad)):
        store.resolve(ref)


BISECT = Operation(
    "bisect",
    BisectWish,
    Bisection,
    bisect,
    Faces(
        cli=("bisect",),
        rest=Route(
            "POST",
            "/bisections",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Find the first commit in which something holds, the requests before it, and what they changed",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "Find the first commit in which something holds: a Python expression (`when`), a command (`run`), an HTTP request "
            "(`http`), or an incident's request that fails (`replay`). Names the requests between it and the commit before, and "
            "the values they changed. Commits are asked in throw-away branches.",
        ),
    ),
    look_up=_look_up,
)


def _check(wish: BisectWish) -> None:
    asked = [name for name in ("run", "when", "http", "replay") if getattr(wish, name) is not None]
    if len(asked) != 1:
        raise UsageError(
            "what is to be asked of each commit?"
            if not asked
            else f"{' and '.join(asked)} cannot be asked together",
            remedy="give one of: a command (run), an expression (when), a request (http), an incident (replay)",
        )
    if wish.expect is not None and wish.http is None:
        raise UsageError(
            "an expectation is of an answer", remedy="name the request (http), or leave expect out"
        )
    if wish.times is not None and wish.curve is None:
        raise UsageError(
            "times is how often each commit of a curve is probed", remedy="add curve, or leave times out"
        )
    if (wish.curve or 0) * (wish.times or _TIMES) > _MOST_OF_A_CURVE:
        raise UsageError(
            f"{wish.curve} commits, {wish.times or _TIMES} times each, are too many probes",
            cause=f"there are at most {_MOST_OF_A_CURVE}",
            remedy="ask fewer commits (curve), or each less often (times)",
        )
    if wish.replay is None and (wish.good is None or wish.bad is None):
        raise UsageError(
            "between which commits?",
            remedy="name one in which it is not so (good) and a later one in which it is (bad); `relive log` lists them",
        )


def _line(store: Store, wish: BisectWish, incident: Incident | None) -> list[StoredCommit]:
    """The commits from good to bad, in the order in which they were taken; at least two."""
    before = _before(store, incident) if incident is not None else None
    last = store.get(store.resolve(wish.bad)) if wish.bad is not None else before
    assert last is not None, "it was checked that bad is given, or an incident"
    of_target = store.log(last.name)[::-1]
    if incident is not None:
        of_target = [one for one in of_target if one.life == incident.life]
    if not of_target or (incident is not None and last.life != incident.life):
        raise _other_service(last, incident.service if incident is not None else last.name)
    if before is not None and (last.taken_wall_ns, last.id) > (before.taken_wall_ns, before.id):
        raise UsageError(
            f"commit {last.id[:10]} (bad) was taken after the failing request of incident {wish.replay} had begun",
            cause="from there it cannot be sent again",
            remedy=f"leave it out: then it is {before.id[:10]}, the last one before the incident",
        )
    first = store.get(store.resolve(wish.good)) if wish.good is not None else of_target[0]
    if first.name != last.name:
        raise _other_service(first, last.name)
    if first.id == last.id:
        raise UsageError(
            f"commit {first.id[:10]} is both good and bad",
            cause="it is the only one before the incident"
            if incident is not None and wish.good is None
            else "what is looked for lies between two commits",
            remedy="name an earlier one as good (`relive log`), or commit more often: --every request, or a shorter time",
        )
    if (first.taken_wall_ns, first.id) >= (last.taken_wall_ns, last.id):
        raise UsageError(
            f"commit {first.id[:10]} (good) was not taken before {last.id[:10]} (bad)",
            cause="what is looked for is where something begins",
            remedy="to find where it ended, turn the predicate round and swap the two",
        )
    return [
        one
        for one in of_target
        if (first.taken_wall_ns, first.id) <= (one.taken_wall_ns, one.id) <= (last.taken_wall_ns, last.id)
    ]


def _before(store: Store, incident: Incident) -> StoredCommit:
    before = incident.occurrence(first=False).before
    if before is None:
        raise UsageError(
            f"incident {incident.number} has no commit before it",
            remedy="run the service with --every request or a shorter time, and wait for the failure to come back",
        )
    return store.get(before)


def _other_service(one: StoredCommit, name: str) -> UsageError:
    return UsageError(
        f"commit {one.id[:10]} is of {one.name!r}, or of another start of it than is asked for",
        cause=f"only commits of {name!r} that follow each other have a moment between them",
        remedy=f"`relive log {name}` lists them",
    )


def _probe(
    settings: Settings, store: Store, wish: BisectWish, incident: Incident | None
) -> Callable[[CommitId], Judged]:
    # Each only where it is asked for: protocols, stubs and the inspector are half of what a command imports.
    limit = wish.limit or _LIMIT
    if wish.when is not None:
        from relive.bisection.expression import ExpressionProbe

        return ExpressionProbe(settings, store, wish.when, limit)
    if incident is not None:
        from relive.bisection.failing_again import FailureProbe

        return FailureProbe(settings, store, incident, wish.limit)
    from relive.bisection.branches import CommandProbe, HttpProbe

    if wish.run is not None:
        return CommandProbe(settings, store, wish.run, inside_environment(), limit)
    asked = _REQUEST_LINE.fullmatch((wish.http or "").strip())
    if asked is None:
        raise UsageError(
            f"{wish.http!r} is no request", remedy="write its path, or a method and a path: 'POST /refresh'"
        )
    expectation = parse_expectation(wish.expect or "status < 500")
    return HttpProbe(settings, store, asked[1] or "GET", asked[2], expectation, limit)


def _tolerant(probe: Callable[[CommitId], Judged], line: Sequence[StoredCommit]) -> Callable[[int], Judged]:
    """By number; a commit that cannot be brought back is a probe that failed."""

    def ask(at: int) -> Judged:
        try:
            return probe(line[at].id)
        except (RestoreFailed, StoreError, RecordingError) as error:
            return Judged(judgement=Judgement.FAILED, seen=str(error))

    return ask


def _expected(count: int, wish: BisectWish) -> int:
    return min(wish.most, 2 + count.bit_length() + wish.further)


def _bisection(
    settings: Settings, wish: BisectWish, line: Sequence[StoredCommit], found: Jumps, drawn: Sequence[int]
) -> Bisection:
    mask = Mask.configured(settings)
    commits = [_commit(at, one, found) for at, one in enumerate(line)]
    suspects = credible(found.posterior, wish.confidence) if found.posterior is not None else []
    probed = found.evidence.known()
    return Bisection(
        service=line[0].name,
        question=mask.sentence(_question(wish)),
        commits=len(line),
        lives=len({one.life for one in line}),
        probes=len(found.evidence.probes),
        failed=len(found.evidence.failed()),
        jumps=[
            _jump(settings, mask, line, commits, found, at, has_curve=bool(drawn))
            for at in range(len(found.spans))
        ],
        probed=[commits[at] for at in sorted(probed)],
        suspects=[commits[at] for at in suspects][:_MOST_TOLD],
        no_jump=found.no_jump,
        two_jumps=found.two,
        why_not=found.why_not,
        curve=_curve(commits, found.evidence, drawn),
    )


def _curve(commits: Sequence[BisectedCommit], evidence: ProbesMade, drawn: Sequence[int]) -> list[CurvePoint]:
    counts = evidence.counts()
    return [
        CurvePoint(
            commit=commits[at].commit,
            number=at,
            taken_wall_ns=commits[at].taken_wall_ns,
            **_side(counts[at : at + 1]).model_dump(),
        )
        for at in drawn
        if counts[at] != ProbeCounts()
    ]


def _question(wish: BisectWish) -> str:
    if wish.when is not None:
        return f"when {wish.when}"
    if wish.run is not None:
        return f"run {wish.run}"
    if wish.http is not None:
        return f"http {wish.http}, expecting {wish.expect or 'status < 500'}"
    return f"incident {wish.replay} fails again"


def _commit(at: int, one: StoredCommit, found: Jumps) -> BisectedCommit:
    own = [judged for number, judged in found.evidence.probes if number == at]
    said = [judged.judgement for judged in own]
    return BisectedCommit(
        commit=one.id,
        number=at,
        taken_wall_ns=one.taken_wall_ns,
        bad=said.count(Judgement.BAD),
        good=said.count(Judgement.GOOD),
        skipped=said.count(Judgement.SKIPPED),
        failed=said.count(Judgement.FAILED),
        seen=own[-1].seen if own else "",
        probability=found.posterior[at] if found.posterior is not None else None,
    )


def _jump(
    settings: Settings,
    mask: Mask,
    line: Sequence[StoredCommit],
    commits: Sequence[BisectedCommit],
    found: Jumps,
    number: int,
    *,
    has_curve: bool,
) -> Jump:
    span = found.spans[number]
    sides = _sides(found, number) if found.posterior is not None or has_curve else None
    begins = (
        sides[1].rate > sides[0].rate
        if sides is not None
        else found.evidence.known()[span.after] is Judgement.BAD
    )
    requests = _requests(settings, mask, line[span.before], line[span.after])
    difference, why = _difference(settings, line[span.before].id, line[span.after].id)
    return Jump(
        before=commits[span.before],
        after=commits[span.after],
        unjudged=[line[at].id for at in span.unjudged][:_MOST_TOLD],
        begins=begins,
        probability=found.posterior[span.after]
        if found.posterior is not None and len(found.spans) == 1
        else found.two,
        sides=sides,
        requests=requests[:_MOST_TOLD] if requests is not None else None,
        request_count=len(requests or ()),
        difference=difference,
        why_no_difference=why,
    )


def _sides(found: Jumps, number: int) -> tuple[Side, Side]:
    span, counts = found.spans[number], found.evidence.counts()
    begin = found.spans[number - 1].after if number else 0
    end = found.spans[number + 1].before + 1 if number + 1 < len(found.spans) else len(counts)
    return _side(counts[begin : span.before + 1]), _side(counts[span.after : end])


def _side(counts: Sequence[ProbeCounts]) -> Side:
    total = ProbeCounts(sum(one.bad for one in counts), sum(one.good for one in counts))
    estimate = rate(total)
    return Side(
        bad=total.bad,
        probes=total.bad + total.good,
        rate=estimate.mean,
        least=estimate.least,
        most=estimate.most,
    )


def _requests(
    settings: Settings, mask: Mask, before: StoredCommit, after: StoredCommit
) -> list[RequestBetween] | None:
    """Those that were taken, or answered, between two commits of one start of the service."""
    if before.life is None or before.life != after.life or before.sequence is None or after.sequence is None:
        return None
    begin, end = before.sequence, after.sequence
    try:
        exchanges = Exchanges(Recording(LifePaths(settings.capsules / before.name / before.life).recording))
        found = [
            *(one for one in exchanges.open_at(begin) if one.ended_seq is not None and one.ended_seq <= end),
            *exchanges.begun_in(begin, end),
        ]
    except RecordingError:
        return None
    return [
        RequestBetween(
            number=one.number,
            method=one.method,
            target=mask.target(one.target),
            status=one.status,
            began_wall_ns=one.started_wall_ns,
        )
        for one in found
    ]


def _difference(
    settings: Settings, before: CommitId, after: CommitId
) -> tuple[CommitDifference | None, str | None]:
    """With Python's values where the service has any; the second says why there is none, or no values."""
    try:
        return diff(settings, DiffWish(before=before, after=after, python=True), Silent()), None
    except ReliveError as error:
        why = str(error)
    try:
        return diff(settings, DiffWish(before=before, after=after), Silent()), why
    except ReliveError as error:
        return None, str(error)
