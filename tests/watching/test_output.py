"""A container's output, followed by a command that this test plays."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.watching.engine import OutputTarget
from relive.watching.output import OutputFollower, split_line
from relive.watching.timestamps import moment

BEGAN = "2026-11-22T02:43:20Z"
FIRST = "2026-11-22T02:43:24.42Z one"
SECOND = "2026-11-22T02:43:24.421Z two"
THIRD = "2026-11-22T03:43:25+01:00 three"


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.000000007Z", 1_000_000_007),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:01.25+01:00", 1_250_000_000),
    ],
)
def test_a_moment_is_read_to_the_nanosecond(text, nanoseconds):
    assert moment(text) == nanoseconds


def test_times_that_are_cut_compare_as_times_and_not_as_texts():
    assert moment("2026-11-22T02:43:24.42Z") < moment("2026-11-22T02:43:24.421Z")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (b"2026-11-22T02:43:24.42Z hello\n", ("2026-11-22T02:43:24.42Z", b"hello\n")),
        (b"2026-11-22T02:43:24.42Z \n", ("2026-11-22T02:43:24.42Z", b"\n")),
        (b"Error: no such container\n", ("", b"Error: no such container\n")),
    ],
)
def test_a_line_is_split_from_its_time(line, parts):
    assert split_line(line) == parts


class Played:
    """Runs of the command, each with its lines of stdout and stderr."""

    def __init__(self, directory: Path, *runs: tuple[list[str], list[str]]) -> None:
        self.streams = [directory / "out", directory / "err"]
        self.position = directory / "position"
        self.runs = list(runs)
        self.asked: list[str] = []
        self.heard: list[tuple[bytes, int]] = []

    def command(self, since: str) -> list[str]:
        self.asked.append(since)
        out, err = self.runs.pop(0)
        script = [f"echo {shlex.quote(line)}" for line in out] + [
            f"echo {shlex.quote(line)} >&2" for line in err
        ]
        return ["sh", "-c", "; ".join(script) or "true"]

    def follow(self, until: Callable[[], bool]) -> None:
        asyncio.run(asyncio.wait_for(self._follow(until), 20))

    async def _follow(self, until: Callable[[], bool]) -> None:
        started = asyncio.Event()
        follower = OutputFollower(
            self.command,
            OutputTarget(
                self.streams, self.position, BEGAN, lambda line, begin: self.heard.append((line, begin))
            ),
        )
        task = asyncio.create_task(follower.follow(started))
        while not until():
            started.set()
            await asyncio.sleep(0.01)
        await follower.idle.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_both_streams_are_kept_and_heard_without_their_times(tmp_path):
    played = Played(tmp_path, ([FIRST], [SECOND, THIRD]))
    played.follow(lambda: len(played.heard) == 3)
    assert [path.read_text() for path in played.streams] == ["one\n", "two\nthree\n"]
    assert (b"three", len("two\n")) in played.heard
    assert played.asked == [BEGAN]


def test_the_next_run_goes_on_where_the_last_ended_and_takes_no_line_twice(tmp_path):
    played = Played(tmp_path, ([FIRST, SECOND], []), ([SECOND, THIRD], []))
    played.follow(lambda: len(played.heard) == 3)
    assert played.streams[0].read_text() == "one\ntwo\nthree\n"
    assert played.asked == [BEGAN, SECOND.split(maxsplit=1)[0]]


def test_another_follower_goes_on_from_the_note(tmp_path):
    Played(tmp_path, ([FIRST], [])).follow((tmp_path / "position").exists)
    second = Played(tmp_path, ([FIRST, SECOND], []))
    second.follow(lambda: bool(second.heard))
    assert second.asked == [FIRST.split(maxsplit=1)[0]]
    assert (tmp_path / "out").read_text() == "one\ntwo\n"


def test_what_the_command_itself_says_is_not_the_containers(tmp_path):
    played = Played(tmp_path, ([FIRST], ["Error: the log is gone"]))
    played.follow(lambda: len(played.heard) == 1)
    assert played.streams[1].read_text() == ""
