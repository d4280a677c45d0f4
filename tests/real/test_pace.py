"""The service stands still no longer than it may: what the clock does not commit, and how it says so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


def test_the_clock_waits_for_pauses_and_bytes_and_says_what_it_left_out(relive: Relive) -> None:
    # By full commits: the pause of a micro-commit is shorter than the disk takes, which holds the clock then.
    share = ("--pause-share", "5", "--budget", "900GB/h", "--no-micro")
    relive("run", *OPTIONS, "--every", "10ms", *share, *SLEEPS)
    eventually(lambda: len(relive.commits()) >= 3, "it is committed by the clock")
    # What the clock writes down of itself is at most a second old.
    state = eventually(lambda: (now := shown(relive))["notes"] and now, "it says what it waits for")
    pauses = [one["pause_us"] for one in relive("log")]
    assert round(state["pace"]["actual_s"] * 1e6) >= 20 * min(pauses)
    assert "not every 10.0 ms" in state["notes"][0] and "--pause-share is 5 %" in state["notes"][0]
    assert state["pace"]["budget"] == 900 * 10**9
    assert (
        eventually(lambda: shown(relive)["pace"]["left_out"].get("pauses"), "what was left out is counted")
        > 1
    )
    relive("stop", "service")
    budget = ("--pause-share", "100", "--budget", "1MB/h")
    relive("run", "-d", "--no-recorder", "--name", "spent", "--every", "10ms", *budget, *SLEEPS)
    note, *_ = eventually(
        lambda: next(one for one in relive("ps") if one["id"] == "spent")["notes"], "it waits"
    )
    assert "counts against --budget, which is 976.6 KiB/h" in note
    assert [one["trigger"] for one in relive("log", "spent")] == ["start"]


def test_where_commits_follow_the_code_one_comes_when_another_revision_is_there(
    relive: Relive, tmp_path: Path
) -> None:
    script = tmp_path / "service.py"
    script.write_text("import signal; signal.pause()")
    relive("run", *OPTIONS, "--every", "deploy", "--", str(PYTHON), str(script))
    eventually(relive.commits, "its first commit")
    script.write_text("import signal; signal.pause()  # mended")
    eventually(lambda: len(relive.commits()) == 2, "it is committed again")
    assert [one["trigger"] for one in relive("log")] == ["deploy", "start"]


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
