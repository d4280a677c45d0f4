"""What `relive replay` says, as snapshots, and the exit status it ends with."""

from __future__ import annotations

import pytest

from relive.cli.replay_cmd import describe
from relive.errors import UsageError
from relive.model.outcome import End, Outcome, Replay, Run, Stack, Steps, Stubbed, Verdict, VerdictKind
from relive.operations.policies import parse_policy
from relive.operations.replays import replay_status

REPRODUCED, NOT = VerdictKind.REPRODUCED, VerdictKind.NOT_REPRODUCED
DIVERGED, FAILED = VerdictKind.DIVERGED, VerdictKind.FAILED_TO_RESTORE

BAD = Outcome(end=End.ANSWERED, status=500, seconds=0.0123, packets_left=0, refused=0)


def run(number: int, kind: VerdictKind, outcome: Outcome | None = BAD, **more) -> Run:
    verdict = Verdict(
        kind=kind,
        difference=more.pop("difference", None),
        notes=more.pop("notes", []),
        inside=more.pop("inside", []),
    )
    facts = {"forwarded": 2, "restore_us": 81_500, "seconds": 0.5} | more
    return Run(number=number, verdict=verdict, outcome=outcome, **facts)


def replay(*runs: Run, **more) -> Replay:
    facts = {
        "service": "pay",
        "incident": 17,
        "request": 9,
        "commit": "c0ffee" * 10 + "0000",
        "recorded": BAD,
    } | more
    return Replay(runs=list(runs), **facts)


SNAPSHOTS = {
    "with stubs, and where the time went": (
        replay(
            run(
                1,
                DIVERGED,
                BAD.model_copy(
                    update={"stubs": Stubbed(continued=8, opened=1, given=1, simulated=2, missed=3)}
                ),
                difference="status 500 was recorded, 502 came",
                inside=["no recorded answer to query 'select 1' at 10.0.0.5:5432"],
                steps=Steps(restore=0.08, seal=0.001, stubs=0.002, request=0.4, compare=0.0001),
            ),
            prepare_seconds=0.03,
        ),
        10,
        """\
incident 17 of pay: diverged, reproduced 0 of 1
  from commit c0ffeec0ff, recorded: status 500 after 12.3 ms
  run 1: diverged: status 500 after 12.3 ms; 2 other requests sent again, restored in 81.5 ms, 0 packets left
         first difference: status 500 was recorded, 502 came
         stubs: 8 connections went on, 1 new, 1 call answered, 2 simulated, 3 without a recorded answer
         inside: no recorded answer to query 'select 1' at 10.0.0.5:5432
  time: recording 30.0 ms, restore 80.0 ms, seal 1.0 ms, stubs 2.0 ms, request 400.0 ms, compare 100 us""",
    ),
    "reproduced every time, with a stack": (
        replay(
            run(
                1,
                REPRODUCED,
                BAD.model_copy(
                    update={
                        "stack": Stack(
                            exception="KeyError: 1", frames=[(f"{n}.py", n, "f") for n in range(8)], text=[]
                        )
                    }
                ),
                notes=["header x"],
            ),
            run(2, REPRODUCED, forwarded=1),
        ),
        0,
        """\
incident 17 of pay: reproduced 2 of 2
  from commit c0ffeec0ff, recorded: status 500 after 12.3 ms
  run 1: reproduced: status 500 after 12.3 ms; 2 other requests sent again, restored in 81.5 ms, 0 packets left
  run 2: reproduced: status 500 after 12.3 ms; 1 other request sent again, restored in 81.5 ms, 0 packets left

Stack in the branch:
  ... 2 outer frames
  2.py:2 in f
  3.py:3 in f
  4.py:4 in f
  5.py:5 in f
  6.py:6 in f
  7.py:7 in f
  KeyError: 1""",
    ),
    "not reproduced": (
        replay(
            run(
                1,
                NOT,
                Outcome(end=End.ANSWERED, status=200, packets_left=0),
                forwarded=0,
                difference="status 500 was recorded, 200 came",
                notes=["before it: oh"],
            ),
            incident=None,
        ),
        1,
        """\
request 9 of pay: not reproduced, reproduced 0 of 1
  from commit c0ffeec0ff, recorded: status 500 after 12.3 ms
  run 1: not reproduced: status 200; 0 other requests sent again, restored in 81.5 ms, 0 packets left
         first difference: status 500 was recorded, 200 came
         note: before it: oh""",
    ),
    "a death, in a sandbox that is gone": (
        replay(
            run(1, REPRODUCED, Outcome(end=End.DIED, signal=11)), recorded=Outcome(end=End.DIED, signal=11)
        ),
        0,
        """\
incident 17 of pay: reproduced 1 of 1
  from commit c0ffeec0ff, recorded: killed by signal 11
  run 1: reproduced: killed by signal 11; 2 other requests sent again, restored in 81.5 ms, sandbox already gone""",
    ),
    "reproduced, but something differed inside": (
        replay(
            run(
                1,
                REPRODUCED,
                notes=["header x"],
                inside=["event 3 of request 9: x", "no recorded answer to y"],
            )
        ),
        0,
        """\
incident 17 of pay: reproduced 1 of 1
  from commit c0ffeec0ff, recorded: status 500 after 12.3 ms
  run 1: reproduced: status 500 after 12.3 ms; 2 other requests sent again, restored in 81.5 ms, 0 packets left
         inside: event 3 of request 9: x
         inside: no recorded answer to y""",
    ),
    "no run could be restored": (
        replay(
            run(
                1,
                FAILED,
                None,
                difference="the restore was given up: it took longer than 20 s",
                restore_us=None,
            )
        ),
        6,
        """\
incident 17 of pay: failed to restore, reproduced 0 of 1
  from commit c0ffeec0ff, recorded: status 500 after 12.3 ms
  run 1: failed to restore: the restore was given up: it took longer than 20 s""",
    ),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_it_says_and_how_it_ends(name):
    result, status, text = SNAPSHOTS[name]
    assert describe(result) == text
    assert replay_status(result) == status


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([REPRODUCED] * 3, 0),
        ([NOT] * 3, 1),
        ([NOT, FAILED], 1),
        ([REPRODUCED, NOT], 10),
        ([REPRODUCED, FAILED], 10),
        ([DIVERGED], 10),
        ([DIVERGED, NOT], 10),
        ([FAILED, FAILED], 6),
    ],
)
def test_the_exit_status_tells_the_whole(kinds, status):
    assert replay_status(replay(*(run(number, kind) for number, kind in enumerate(kinds)))) == status


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(end=End.ANSWERED, status=200), "status 200"),
        (Outcome(end=End.BROKEN), "connection broken"),
        (Outcome(end=End.NO_ANSWER), "no answer"),
        (Outcome(end=End.DIED, exit_status=3), "ended with status 3"),
        (Outcome(end=End.NOTHING), "nothing failed"),
    ],
)
def test_each_end_has_its_words(outcome, words):
    assert f"recorded: {words}\n" in describe(replay(run(1, REPRODUCED), recorded=outcome))


def test_a_remedy_of_a_failed_restore_is_said():
    """It is in the notes of its verdict."""
    result = replay(run(1, FAILED, None, difference="no", notes=["run `relive doctor`"]))
    if "relive doctor" not in describe(result):
        pytest.xfail("_run_line returns before it comes to the notes")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("pass", ("*", "pass")),
        ("http-call:pass", ("http-call", "pass")),
        ("http-call=reset", ("http-call", "reset")),
        ("redis-command=simulate", ("redis-command", "simulate")),
        ("query=fail", ("query", "fail")),
        ("name-lookup=servfail", ("name-lookup", "servfail")),
        ("reset", ("*", "reset")),
    ],
)
def test_what_becomes_of_a_miss(text: str, policy: tuple[str, str]) -> None:
    assert parse_policy(text, has_stubs=True) == policy


@pytest.mark.parametrize(
    "text",
    [
        *("", "perhaps", "http-call=simulate", "file-read=reset", "telex=pass", "=", "a=b=c"),
        *("file-read=fail", "clock=pass", "subprocess=pass", "name-lookup=pass"),
    ],
)
def test_what_cannot_become_of_a_miss(text: str) -> None:
    with pytest.raises(UsageError, match="--on-miss cannot be"):
        parse_policy(text, has_stubs=True)


def test_without_stubs_there_are_two_words() -> None:
    assert parse_policy("http-call=pass") == ("http-call", "pass")
    with pytest.raises(UsageError):
        parse_policy("http-call=reset")
