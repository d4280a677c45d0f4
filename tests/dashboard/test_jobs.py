"""Jobs outlive a click: their results, errors, progress and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.config import Settings
from relive.dashboard import jobs as module
from relive.dashboard.jobs import Job, Jobs, JobState
from relive.errors import Cancelled, ReliveError, UsageError
from relive.operations.health import DOCTOR, DoctorParams, Health
from support.waiting import eventually


class Puppet:
    """Stands for ``perform_apart``: does what a test says."""

    def __init__(self, act) -> None:
        self.act = act

    def __call__(self, operation, settings, params, progress, *, cancel):
        return self.act(progress, cancel)


def run(monkeypatch, act, home: Path = Path("/nowhere")) -> tuple[Jobs, int]:
    monkeypatch.setattr(module, "perform_apart", Puppet(act))
    jobs = Jobs()
    settings = Settings(home=home)
    number = jobs.start(settings, DOCTOR, DoctorParams(), title="Looking", subject="host")
    return jobs, number


def ended(jobs: Jobs, home: Path = Path("/nowhere")) -> Job:
    return eventually(lambda: next((job for job in jobs.of(home) if not job.is_running), None))


def test_a_result_stays_until_it_is_forgotten(monkeypatch):
    jobs, number = run(monkeypatch, lambda *_: Health(ready=True, findings=[]))
    job = ended(jobs)
    assert (job.state, job.result, job.error) == (JobState.DONE, Health(ready=True, findings=[]), None)
    assert jobs.of(Path("/nowhere"), "host") == [job]
    assert jobs.of(Path("/nowhere"), "other") == jobs.of(Path("/elsewhere")) == []
    jobs.forget(number)
    assert jobs.of(Path("/nowhere")) == []


@pytest.mark.parametrize(
    "error", [UsageError("no", cause="so", remedy="other"), ZeroDivisionError("what nobody foresaw")]
)
def test_an_error_is_kept_whatever_it_is(monkeypatch, error):
    def fail(*_):
        raise error

    job = ended(run(monkeypatch, fail)[0])
    assert job.state is JobState.FAILED
    assert job.error is error if isinstance(error, ReliveError) else "foresaw" in str(job.error.cause)


def test_progress_is_seen_while_it_runs_and_cancelling_ends_it(monkeypatch):
    def act(progress, cancel):
        progress.status("It begins.")
        with progress.transfer("reading", 100) as advance:
            advance(20)
            advance(30)
            cancel.wait()
        raise Cancelled("it was cancelled")

    jobs, number = run(monkeypatch, act)
    job = eventually(lambda: next((one for one in jobs.of(Path("/nowhere")) if one.done == 50), None))
    assert (job.doing, job.total, job.unit, job.messages) == ("reading", 100, "bytes", ("It begins.",))
    jobs.forget(number)  # of one that runs nothing is forgotten
    jobs.cancel(number)
    assert ended(jobs).state is JobState.CANCELLED
    jobs.cancel(number)


def test_steps_are_counted_as_they_are_told(monkeypatch):
    def act(progress, _cancel):
        with progress.progress("replaying", 3) as done:
            done(2)
        return Health(ready=False, findings=[])

    job = ended(run(monkeypatch, act)[0])
    assert (job.doing, job.done, job.total, job.unit) == ("replaying", 2, 3, "steps")
