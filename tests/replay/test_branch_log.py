"""What a service in a branch writes where its log was: read from outside, also when it has ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from relive.replay.branch_log import BranchLog
from relive.sandbox.branch import Branch

# Writes what it reads to its standard error, a named log and another file, and says when it has.
_WRITER = 'exec 4>>named 5>>other; while read -r line; do echo "$line" >&2; echo "$line" >&4; echo "$line" >&5; echo; done'


class Service:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "errors").write_text("of before\n")
        (directory / "stderr.log").write_text("")
        with (directory / "errors").open("a") as errors:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _WRITER],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.write("first")

    def write(self, line: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def end(self) -> None:
        self.process.communicate()

    @property
    def branch(self) -> Branch:
        facts = SimpleNamespace(root=self.process.pid)
        return cast(Branch, SimpleNamespace(facts=facts, log=lambda _: self.directory / "stderr.log"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.end()


def test_of_a_watched_service_it_is_what_its_watch_read(service: Service) -> None:
    log = BranchLog(service.branch, [str(service.directory / "named")], 0)
    service.write("second")
    assert log.lines() == [
        "second",
        "second",
    ]  # in its standard error and in the log that was named, not in the other file
    log.begin()
    service.write("third")
    service.end()
    assert log.lines() == ["third", "third"]
    log.close()


def test_of_any_other_it_is_its_standard_error_in_the_branch(service: Service) -> None:
    log = BranchLog(service.branch, None, 0)
    service.write("second")
    with (service.directory / "stderr.log").open("a") as file:
        file.write("of the branch\n")
    assert log.lines() == ["of the branch"]
    log.close()


def test_a_service_that_has_ended_already_has_written_nothing_more(service: Service) -> None:
    service.end()
    log = BranchLog(service.branch, [], 0)
    assert log.lines() == []
    log.close()
