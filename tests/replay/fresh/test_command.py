"""What is started."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.replay.fresh.command import start_for

from .cases import case


def test_as_it_was_recorded():
    start = start_for(case(), (), None)
    assert (start.command, start.directory, start.user) == (["uvicorn", "shop:app"], "/srv", "shop")
    assert (start.port, start.address, start.notes) == (8001, "127.0.0.1", [])
    assert start_for(case(), (), 9).port == 9


def test_another_command_may_listen_anywhere():
    start = start_for(case(), ["python", "x.py"], None)
    assert (start.command, start.port) == (["python", "x.py"], None)


def test_where_the_command_is_not_kept_the_program_has_to_do():
    start = start_for(case(launch=None, argv=["/bin/true", "-x"]), (), None)
    assert (start.command, start.directory, start.user, start.port) == (
        ["/bin/true", "-x"],
        "/srv",
        None,
        None,
    )
    assert "not kept" in start.notes[0]
    assert start_for(case(launch=None), (), None).command == ["python3", "ledger.py"]
    for argv in ([], ["-c"], [""]):
        with pytest.raises(UsageError):
            start_for(case(launch=None, argv=argv), (), None)


def test_a_job_needs_a_command_that_does_it():
    job = {"number": 12, "server": "rq", "method": "tasks.charge", "target": "q/1"}
    with pytest.raises(UsageError, match="queue"):
        start_for(case(request=job, where="job"), (), None)
    assert start_for(case(request=job, where="job"), ["python", "-c", ""], None).command == [
        "python",
        "-c",
        "",
    ]


@pytest.mark.parametrize("cwd", ["", "srv", "/a\0b"])
def test_a_directory_that_is_none_is_refused(cwd):
    with pytest.raises(UsageError):
        start_for(case(launch=None, cwd=cwd), ["x"], None)
