"""Tasks that nobody waits for, and things that may happen once in a while only."""

from __future__ import annotations

import asyncio

import structlog
from structlog.testing import capture_logs

from relive.agent.commits import protection as protection_room
from relive.agent.commits.committer import RateLimit
from relive.agent.commits.protection import Protection
from relive.agent.control.background import BackgroundTasks
from relive.errors import CommitFailed


def test_whatever_goes_wrong_in_a_task_is_logged():
    async def fail(error: Exception) -> None:
        raise error

    async def work() -> None:
        tasks = BackgroundTasks(Protection())
        tasks.begin(fail(CommitFailed("it failed", cause="so it goes")))
        tasks.begin(fail(RuntimeError("a bug")))
        await asyncio.sleep(0)  # both begin, and end with their errors
        await tasks.end()

    structlog.reset_defaults()
    with capture_logs() as logged:
        asyncio.run(work())
    assert [entry["event"] for entry in logged] == ["failed", "unexpected"]
    assert logged[0]["error"]["code"] == "commit-failed"


def test_ending_cancels_what_still_runs():
    ended = []

    async def long() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cleaned up")

    async def work() -> None:
        tasks = BackgroundTasks(Protection())
        tasks.begin(long())
        await asyncio.sleep(0)
        await tasks.end()

    asyncio.run(work())
    assert ended == ["cleaned up"]


def test_the_same_thing_happens_again_only_after_a_pause_and_other_things_at_once():
    now = 0.0
    limit = RateLimit(30.0, clock=lambda: now)
    assert limit.allows("a")
    assert limit.allows("b")
    now = 29.9
    assert not limit.allows("a")
    now = 30.0
    assert limit.allows("a")
    now = 59.0
    assert not limit.allows("a")


def test_without_a_pause_everything_is_allowed():
    limit = RateLimit(0.0, clock=lambda: 1.0)
    assert limit.allows("a")
    assert limit.allows("a")


def test_what_protects_a_service_goes_on_after_an_error_that_nobody_foresaw(monkeypatch):
    protection, tried = Protection(), []
    monkeypatch.setattr(protection_room, "_PAUSE_LEAST", 0.0)

    async def work() -> None:
        tried.append([(one["part"], one["times"], one["code"]) for one in protection.as_json()])
        if len(tried) < 4:
            raise KeyError("nobody foresaw it") if len(tried) < 3 else CommitFailed("it failed")

    async def go() -> None:
        await BackgroundTasks(protection).start_guarded("failures", work)

    structlog.reset_defaults()
    with capture_logs() as logged:
        asyncio.run(go())
    assert tried == [
        [],
        [("failures", 1, "error")],
        [("failures", 2, "error")],
        [("failures", 3, "commit-failed")],
    ]
    assert protection.as_json() == []
    assert len(logged) == 3


def test_what_was_begun_is_finished_and_what_is_guarded_is_not_waited_for():
    done = []

    async def begun() -> None:
        await asyncio.sleep(0)
        done.append("begun")

    async def work() -> None:
        tasks = BackgroundTasks(Protection())
        tasks.start_guarded("part", lambda: asyncio.sleep(3600))
        tasks.begin(begun())
        await tasks.finish(60.0)
        await tasks.end()

    asyncio.run(work())
    assert done == ["begun"]
