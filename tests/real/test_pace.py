"""The service stands still no longer than it may: what the clock does not commit, and how it says so."""

from __future__ import annotations

import os
import signal

from support.waiting import eventually

from .harness import PYTHON, Relive

SLEEPS = ("--", str(PYTHON), "-c", "import signal; signal.pause()")
OPTIONS = ("-d", "--no-recorder", "--name", "service")


def shown(relive: Relive) -> dict:
    return next(one for one in relive("ps") if one["id"] == "service")


def test_a_pause_above_the_limit_is_not_taken_by_the_clock_but_by_hand(relive: Relive) -> None:
    relive("run", *OPTIONS, "--every", "100ms", "--pause-limit", "0.0001", *SLEEPS)
    pace = eventually(lambda: shown(relive)["pace"], "the agent has decided")
    assert pace["is_held"] and pace["expected_us"] > pace["limit_us"] == 100
    said = relive.say("ps").stderr
    assert "service: Not committed by the clock: a commit would stop it for" in said
    assert relive("log") == []
    relive.commit("service")
    assert [one["trigger"] for one in relive("log")] == ["manual"]
    eventually(lambda: "and the last 1 pauses" in shown(relive)["pace"]["basis"], "what it took is known")


def test_the_clock_waits_until_pauses_are_no_more_than_their_share(relive: Relive) -> None:
    relive("run", *OPTIONS, "--every", "10ms", "--pause-share", "5", *SLEEPS)
    eventually(lambda: len(relive.commits()) >= 3, "it is committed by the clock")
    state = shown(relive)
    pauses = [one["pause_us"] for one in relive("log")]
    assert round(state["pace"]["actual_s"] * 1e6) >= 20 * min(pauses)
    assert "not every 10.0 ms" in state["notes"][0] and "--pause-share is 5 %" in state["notes"][0]


def test_where_commits_follow_changes_one_comes_when_the_service_has_done_something(relive: Relive) -> None:
    work = "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sum(range(1_000_000)))\nwhile True: signal.pause()"
    pid = relive("run", *OPTIONS, "--every", "change", "--", str(PYTHON), "-c", work)["pid"]
    eventually(relive.commits, "its first commit")
    before = len(relive.commits())

    def is_committed() -> bool:
        os.kill(pid, signal.SIGUSR1)
        return len(relive.commits()) > before

    eventually(is_committed, "it is committed again")
    assert {one["trigger"] for one in relive("log")[:-1]} == {"timer"}
    assert shown(relive)["pace"]["wanted_s"] is None
