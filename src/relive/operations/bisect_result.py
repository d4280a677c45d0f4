"""What a bisection has found: where it changed, what was asked of the service in between, and what that changed."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from relive.bisection.finding import Jumps, ProbesMade
from relive.bisection.judgement import Judgement
from relive.bisection.posterior import ProbeCounts, credible, rate
from relive.config import Settings
from relive.errors import RecordingError, ReliveError
from relive.incidents.report.body import ReportBody
from relive.incidents.report.masking import Mask
from relive.model.commit import CommitId
from relive.model.life_paths import LifePaths
from relive.operations.bisect_params import BisectParams
from relive.operations.differences import CommitDifference, DiffParams, diff
from relive.operations.operation import Result
from relive.operations.progress import Silent
from relive.recording.connections import TurnKind, connections_in
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.store.index import StoredCommit

__all__ = [
    "BisectedCommit",
    "Bisection",
    "CurvePoint",
    "Jump",
    "RequestBetween",
    "Side",
    "bisection_of",
]

_MOST_TOLD = 100  # requests of a jump, commits of a list


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


class MessageBetween(Result):
    """What a client sent in one piece between two commits, on a connection that is not HTTP/1."""

    connection: int
    sent_wall_ns: int
    body: ReportBody


class Jump(Result):
    """Where it changed.

    Attributes:
        before, after: neighbours but for ``unjudged``, of which nobody knows on which side they are.
        begins: bad from ``after`` on; else it ended there.
        sides: from the jump before to this one, and from this one to the next; of rates and with a curve only.
        requests: the first hundred of ``request_count``; None where nobody recorded any, or they are of different starts.
        messages: the first hundred that clients sent, of those that are not HTTP/1.
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
    messages: list[MessageBetween] = Field(default=[])
    difference: CommitDifference | None
    why_no_difference: str | None


class Bisection(Result):
    """What was found.

    Attributes:
        question: what each commit was asked.
        commits: how many lie between good and bad, both included; lives: of how many starts of the service.
        probed: every commit that was probed, in their order.
        suspects: the fewest commits that hold the jump with the asked probability; of rates only.
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


def bisection_of(
    settings: Settings, params: BisectParams, line: Sequence[StoredCommit], found: Jumps, drawn: Sequence[int]
) -> Bisection:
    """What is said of it, secrets masked. ``drawn``: commits of the curve, by their numbers in the line."""
    mask = Mask.configured(settings)
    commits = [_commit(at, one, found) for at, one in enumerate(line)]
    suspects = credible(found.posterior, params.confidence) if found.posterior is not None else []
    probed = found.evidence.known()
    return Bisection(
        service=line[0].name,
        question=mask.sentence(_question(params)),
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


def _question(params: BisectParams) -> str:
    if params.when is not None:
        return f"when {params.when}"
    if params.run is not None:
        return f"run {params.run}"
    if params.http is not None:
        return f"http {params.http}, expecting {params.expect or 'status < 500'}"
    return f"incident {params.replay} fails again"


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
    messages = _messages(settings, mask, line[span.before], line[span.after]) if requests == [] else []
    if messages is None:
        requests = None
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
        messages=messages or [],
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


def _messages(
    settings: Settings, mask: Mask, before: StoredCommit, after: StoredCommit
) -> list[MessageBetween] | None:
    """What clients sent between two commits that is not HTTP/1; None where it cannot be told, as of ``_requests``."""
    if before.life is None or before.life != after.life or before.sequence is None or after.sequence is None:
        return None
    recording = Recording(LifePaths(settings.capsules / before.name / before.life).recording)
    try:
        turns = connections_in(recording, before.sequence, after.sequence).turns
        sent = [one for one in turns if one.kind is TurnKind.SENT][:_MOST_TOLD]
        events = [recording.event_at(one.place) for one in sent]
    except RecordingError:
        return None
    return [
        MessageBetween(
            connection=one.connection, sent_wall_ns=one.wall_ns, body=ReportBody.of(mask.body(one.data, ""))
        )
        for one in events
    ]


def _difference(
    settings: Settings, before: CommitId, after: CommitId
) -> tuple[CommitDifference | None, str | None]:
    """With Python's values where the service has any; the second says why there is none, or no values."""
    try:
        return diff(settings, DiffParams(before=before, after=after, python=True), Silent()), None
    except ReliveError as error:
        why = str(error)
    try:
        return diff(settings, DiffParams(before=before, after=after), Silent()), why
    except ReliveError as error:
        return None, str(error)
