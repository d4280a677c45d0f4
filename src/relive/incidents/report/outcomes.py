"""What replays and reproductions showed, with secrets masked: answers and log lines hold what the service said, which nobody had
scrubbed.

What happened inside was scrubbed when it was recorded.
"""

from __future__ import annotations

from relive.incidents.report.masking import Mask
from relive.model.outcome import Outcome, Replay, Run, Stack, Verdict
from relive.model.reproduction import Attempt

__all__ = ["masked_attempt", "masked_replay", "masked_run"]


def masked_replay(replay: Replay, mask: Mask) -> Replay:
    """The same replay; whatever is secret by its place in an answer is learned, and masked in all that comes after it."""
    recorded = _outcome(replay.recorded, mask)
    runs = [masked_run(run, mask) for run in replay.runs]
    return replay.model_copy(update={"recorded": recorded, "runs": runs})


def masked_run(run: Run, mask: Mask) -> Run:
    """One run of it; once more changes nothing."""
    outcome = None if run.outcome is None else _outcome(run.outcome, mask)
    return run.model_copy(update={"outcome": outcome, "verdict": _verdict(run.verdict, mask)})


def masked_attempt(attempt: Attempt, mask: Mask) -> Attempt:
    """One attempt of a reproduction; once more changes nothing."""
    raised = attempt.raised
    if raised is not None:
        raised = raised.model_copy(update={"text": mask.sentence(raised.text)})
    return attempt.model_copy(
        update={
            **_reasons(attempt, mask),
            "raised": raised,
            "log": [mask.sentence(line) for line in attempt.log],
        }
    )


def _outcome(outcome: Outcome, mask: Mask) -> Outcome:
    headers = [(name, mask.named(name, value)) for name, value in outcome.headers]
    body = outcome.body
    if not outcome.body_is_base64:
        kind = dict(outcome.headers).get("content-type", "")
        body = mask.body(body.encode("utf-8", "surrogatepass"), kind).decode("utf-8", "surrogatepass")
    stack = outcome.stack
    if stack is not None:
        stack = Stack(
            exception=mask.sentence(stack.exception),
            frames=stack.frames,
            text=[mask.sentence(line) for line in stack.text],
        )
    log = [mask.sentence(line) for line in outcome.log]
    return outcome.model_copy(update={"headers": headers, "body": body, "stack": stack, "log": log})


def _verdict(verdict: Verdict, mask: Mask) -> Verdict:
    inside = [mask.sentence(note) for note in verdict.inside]
    return verdict.model_copy(update={**_reasons(verdict, mask), "inside": inside})


def _reasons(verdict: Verdict | Attempt, mask: Mask) -> dict[str, object]:
    return {
        "difference": None if verdict.difference is None else mask.sentence(verdict.difference),
        "missing": [mask.sentence(text) for text in verdict.missing],
        "evidence": [mask.sentence(text) for text in verdict.evidence],
        "unseen": [mask.sentence(text) for text in verdict.unseen],
        "notes": [mask.sentence(note) for note in verdict.notes],
    }
