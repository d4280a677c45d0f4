"""Files of output, followed through what is done to logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from relive.agent.failures.log_files import LogFile
from relive.watching.engine import OutputTarget
from relive.watching.processes.output import FileOutput


class Heard:
    """A follower of one file, and what it has told."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "service.log"
        self.lines: list[bytes] = []
        streams = [directory / "stdout.log", directory / "stderr.log"]
        self.streams = streams
        self.target = OutputTarget(
            streams,
            directory / "position",
            "2026-11-22T02:43:20Z",
            lambda line, _begin: self.lines.append(line),
        )

    def made(self) -> FileOutput:
        return FileOutput(lambda: [LogFile(str(self.log), 1)], self.target)

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not check():
                await asyncio.sleep(0.01)


def followed(heard: Heard, *steps: tuple[Callable[[], object], list[bytes]]) -> None:
    """Follow while each step is taken; after it these lines have been heard."""

    async def go() -> None:
        started = asyncio.Event()
        started.set()
        task = asyncio.create_task(heard.made().follow(started))
        await asyncio.sleep(0)
        expected: list[bytes] = []
        for act, lines in steps:
            act()
            expected += lines
            await heard.until(lambda wanted=tuple(expected): tuple(heard.lines) == wanted)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(go())


def append(path: Path, text: str) -> Callable[[], object]:
    def act() -> None:
        with path.open("a") as file:
            file.write(text)

    return act


def test_only_what_is_written_from_the_beginning_of_the_watch_on_is_heard(tmp_path):
    heard = Heard(tmp_path)
    heard.log.write_text("before\n")
    followed(
        heard,
        (append(heard.log, "one\ntw"), [b"one"]),
        (append(heard.log, "o\n"), [b"two"]),
    )
    assert heard.streams[1].read_text() == "one\ntwo\n"
    append(heard.log, "while nobody followed\n")()
    heard.lines.clear()
    followed(heard, (lambda: None, [b"while nobody followed"]))


def test_a_log_that_is_rotated_is_followed_by_either_way(tmp_path):
    heard = Heard(tmp_path)
    heard.log.touch()
    followed(
        heard,
        (append(heard.log, "one\n"), [b"one"]),
        (lambda: (heard.log.rename(tmp_path / "old"), heard.log.write_text("two\n")), [b"two"]),
        (lambda: heard.log.write_text(""), []),
        (append(heard.log, "3\n"), [b"3"]),
    )
