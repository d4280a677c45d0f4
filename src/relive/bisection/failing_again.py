"""A probe that sends the request of an incident: a commit from which it fails as recorded is bad.

Only that request is sent, at once, with those that the commit holds half served: what is asked is whether the state of the
commit is one in which it fails. The requests that had come in between would make that state anew. Of a service whose clients speak
something other than HTTP/1 it is what was said on the last connection on which a client said something.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass

from relive.bisection.judgement import Judged, Judgement
from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.report.masking import Mask
from relive.kernel import procfs
from relive.model.commit import CommitId
from relive.model.incident import Incident
from relive.model.outcome import Outcome, Verdict, VerdictKind, verdict_words
from relive.recording.connections import Connections, TurnKind
from relive.replay.plan import Hangup, Pace, ReplayPlan, ReplayStep
from relive.replay.replay import replay
from relive.replay.replay_input import FailingRequest, ReplayInput, case_of_incident
from relive.replay.replay_options import ReplayOptions
from relive.replay.sequence import event_words, first_new_call, miss_words
from relive.replay.workers import elsewhere_words
from relive.store import Store

__all__ = ["FailureProbe", "judged_verdict", "last_conversation", "with_the_request_alone"]


@dataclass(frozen=True, slots=True)
class FailureProbe:
    """The latest time that an incident was seen.

    Args:
        request: in which it failed (``failing_request``); None: in none that the proxy saw.
        said: what is sent where there is no request (``last_conversation``); None: nothing is.
        limit: seconds that the request has; None: as a replay gives it.
    """

    settings: Settings
    store: Store
    incident: Incident
    request: FailingRequest | None
    said: Connections | None
    limit: float | None

    def __call__(self, commit: CommitId) -> Judged:
        """Raises ReliveError where the request cannot be sent again from that commit."""
        mask = Mask.configured(self.settings)
        occurrence = self.incident.occurrence(first=False).model_copy(update={"before": commit})
        case = case_of_incident(self.settings, self.store, self.incident, occurrence, alone=self.request)
        case = (
            _with_the_messages_alone(case, self.said)
            if self.said is not None
            else with_the_request_alone(case)
        )
        options = ReplayOptions(
            times=1,
            jobs=1,
            pace=Pace.FAST,
            limit=self.limit,
            sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
        )
        (run,) = asyncio.run(replay(self.settings, self.store, case, options)).runs
        judged = judged_verdict(run.verdict, run.outcome, case.recorded)
        return judged.model_copy(update={"seen": mask.sentence(judged.seen)})


def with_the_request_alone(case: ReplayInput) -> ReplayInput:
    """The case without the requests that came between the commit and the failing one; raises UsageError where there is none."""
    if case.exchange is None:
        raise UsageError(
            f"incident {case.incident} has no request that could be sent from another commit",
            cause="it did not fail in a request that the proxy recorded",
            remedy="ask the commits otherwise: --when, --run or --http",
        )
    number, plan = case.exchange.number, case.plan
    kept = [step for step in plan.steps if step.continues or step.exchange.number == number]
    alone = ReplayPlan(
        steps=[dataclasses.replace(step, after_commit_ns=0) for step in kept],
        subject=plan.subject,
        until_ns=0,
        left_out=plan.left_out,
        answered=plan.answered,
        hangups=[_hangup(step) for step in kept if step.continues and _was_last(step)],
    )
    numbers = {step.exchange.number for step in kept}
    earlier = {one: outcome for one, outcome in case.earlier.items() if one in numbers}
    return dataclasses.replace(case, plan=alone, earlier=earlier)


def _was_last(step: ReplayStep) -> bool:
    """Its answer was the last on its connection, which the client then closed."""
    said = [value.lower() for name, value in step.exchange.answer_headers if name == b"connection"]
    return any(b"close" in [one.strip() for one in value.split(b",")] for value in said)


def _hangup(step: ReplayStep) -> Hangup:
    # A server with one worker for one connection may wait for it, and takes no other meanwhile: gunicorn up to two seconds.
    exchange = step.exchange
    return Hangup(exchange.connection, exchange.local_port, 0, frozenset({exchange.number}))


def last_conversation(case: ReplayInput) -> Connections | None:
    """What was said on the last connection on which a client said something before a failure; None: nobody did, or only HTTP/1."""
    found = case.plan.conversations
    sent = [one for one in found.turns if one.kind is TurnKind.SENT] if found is not None else []
    return found.of_connection(sent[-1].connection) if found is not None and sent else None


def _with_the_messages_alone(case: ReplayInput, said: Connections) -> ReplayInput:
    steps = [dataclasses.replace(one, after_commit_ns=0) for one in case.plan.steps if one.continues]
    plan = dataclasses.replace(case.plan, steps=steps, hangups=[], conversations=said, until_ns=0)
    return dataclasses.replace(case, plan=plan, earlier={})


def judged_verdict(verdict: Verdict, outcome: Outcome | None, recorded: Outcome) -> Judged:
    """What a verdict says: a failure of another kind says nothing of this one, so its commit is skipped.

    So is one in which the request failed alike, and had asked others for something that it had not asked in the recording: whatever
    it was answered was recorded for another request, at another time, and is not what it would have been told. And one in which it
    did not fail while its worker was busy: another worker, with values of its own, may have answered.
    """
    seen = verdict_words(verdict.kind)
    new = first_new_call(recorded.events, outcome.events) if outcome is not None else None
    if verdict.kind is VerdictKind.NOT_REPRODUCED and outcome is not None and outcome.status is not None:
        seen = f"{seen}: status {outcome.status}"
    elif new is not None:
        seen = f"{seen}, but it asked for what it had not asked in the recording: {event_words(new)}"
    elif outcome is not None and outcome.misses:
        seen = f"{seen}: {miss_words(outcome.misses[0])}"  # a difference would only be what came of it
    elif verdict.difference:
        seen = f"{seen}: {verdict.difference}"
    match verdict.kind:
        case VerdictKind.SAME_ANSWER if verdict.missing:
            judgement = Judgement.SKIPPED  # it may have failed for want of what the recording does not hold
        case VerdictKind.REPRODUCED | VerdictKind.SAME_ANSWER if new is not None:
            judgement = Judgement.SKIPPED
        case VerdictKind.REPRODUCED | VerdictKind.SAME_ANSWER:
            judgement = Judgement.BAD
        case VerdictKind.NOT_REPRODUCED if outcome is not None and outcome.elsewhere:
            judgement, seen = Judgement.SKIPPED, f"{seen}, but {elsewhere_words(outcome.elsewhere[0])}"
        case VerdictKind.NOT_REPRODUCED:
            judgement = Judgement.GOOD
        case VerdictKind.DIVERGED:
            judgement = Judgement.SKIPPED
        case _:
            judgement = Judgement.FAILED
    return Judged(judgement=judgement, seen=seen)
