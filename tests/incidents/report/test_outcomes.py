"""What a replay showed holds no secret in what is told and kept of it."""

from __future__ import annotations

from relive.incidents.report.masking import MASK, Mask
from relive.incidents.report.outcomes import masked_attempt, masked_replay
from relive.model.commit import CommitId
from relive.model.outcome import End, Outcome, Replay, Run, Stack, Verdict, VerdictKind
from relive.model.reproduction import Attempt, Raised, ReproductionKind

SECRET = "of-the-environment"


def outcome(**more) -> Outcome:
    return Outcome(end=End.ANSWERED, status=500, **more)


def masked(recorded: Outcome, came: Outcome | None, verdict: Verdict) -> Replay:
    mask = Mask()
    mask.learn_environment({"API_TOKEN": SECRET})
    run = Run(number=1, verdict=verdict, outcome=came, forwarded=0, restore_us=None, seconds=0.0)
    replay = Replay(
        service="pay", incident=1, request=1, commit=CommitId("c" * 64), recorded=recorded, runs=[run]
    )
    return masked_replay(replay, mask)


def test_secrets_are_masked_wherever_the_service_had_said_them():
    stack = Stack(exception=f"KeyError: {SECRET}", frames=[("a.py", 1, "f")], text=[f"KeyError: {SECRET}"])
    json = [("content-type", "application/json"), ("set-cookie", "sid=of-the-cookie; Path=/")]
    replay = masked(
        outcome(body=f"no {SECRET}", log=[f"no {SECRET}"], stack=stack),
        outcome(headers=json, body='{"session_token": "of-the-body", "n": 0.5}', log=["of-the-body"]),
        Verdict(
            kind=VerdictKind.DIVERGED, difference=f"{SECRET} was recorded", notes=[SECRET], inside=[SECRET]
        ),
    )
    assert "of-the" not in replay.model_dump_json()
    (run,) = replay.runs
    assert run.outcome is not None and run.outcome.body == f'{{"session_token": "{MASK}", "n": 0.5}}'
    assert run.outcome.log == [MASK]
    assert replay.recorded.stack is not None and replay.recorded.stack.exception == f"KeyError: {MASK}"


def test_what_is_no_secret_stays_and_so_does_a_branch_that_was_not_restored():
    body = '{"id":  4539148803436468,"random":0.4111111111111111}'
    failed = Verdict(kind=VerdictKind.FAILED_TO_RESTORE, difference="no memory")
    replay = masked(outcome(headers=[("content-type", "application/json")], body=body), None, failed)
    assert replay.recorded.body == body
    assert replay.runs[0].outcome is None and replay.runs[0].verdict == failed


def test_an_attempt_to_reproduce_tells_no_secret_that_it_was_given():
    mask = Mask()
    mask.learn_environment({"API_TOKEN": SECRET})
    raised = Raised(type="KeyError", text=SECRET, fingerprint="f")
    attempt = Attempt(
        number=1,
        kind=ReproductionKind.DIVERGED,
        difference=f"{SECRET} came",
        notes=[SECRET],
        raised=raised,
        log=[f"no {SECRET}", "else"],
    )
    told = masked_attempt(attempt, mask)
    assert SECRET not in told.model_dump_json()
    assert (told.log, told.number) == ([f"no {MASK}", "else"], 1)
    assert masked_attempt(told, mask) == told
