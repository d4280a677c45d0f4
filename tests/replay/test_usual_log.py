"""What stands in the log beside requests that went well, read from a recording and a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.model.outcome import End, Outcome
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter
from relive.replay.cause import find_cause
from relive.replay.usual_log import UsualLog, plain_line, usual_log


class Service:
    """Writes a recording and a log as a proxy and a service do."""

    def __init__(self, place: Path, segment_bytes: int = 1 << 20) -> None:
        self.log = place / "stderr.log"
        self.log.touch()
        self._place = place / "recording"
        self._writer = RecordingWriter(self._place, segment_bytes=segment_bytes)

    def write(self, *lines: str) -> None:
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _offsets(self) -> dict[str, object]:
        return {"log_offsets": {str(self.log): self.log.stat().st_size}}

    def begin(self) -> tuple[int, int]:
        """(number, seq) of a request."""
        number = self._writer.next_request()
        fields = self._offsets()
        return number, self._writer.append(
            EventKind.REQUEST_STARTED, 1, number, b"GET / HTTP/1.1\r\n\r\n", fields
        )

    def answer(self, number: int, status: int) -> None:
        self._writer.append(EventKind.ANSWER_STARTED, 1, number, b"", {"status": status})
        self._writer.append(EventKind.ANSWER_ENDED, 1, number, b"", self._offsets())

    def usual(self, until: int) -> UsualLog:
        self._writer.flush()
        return usual_log(Recording(self._place), self.log, until)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def test_lines_beside_good_requests_are_usual_also_those_that_follow_the_answer(service: Service) -> None:
    service.write("ready")
    number, _ = service.begin()
    service.write("took 12 ms")
    service.answer(number, 200)
    service.write("127.0.0.1:40112 bye")
    _, failing = service.begin()
    service.write("cannot")
    assert service.usual(failing).lines == {"took N ms", "N.N.N.N:N bye"}


def test_what_a_failing_request_wrote_before_is_not_usual(service: Service) -> None:
    """The same failure came before: its lines still show it."""
    first, _ = service.begin()
    second, _ = service.begin()  # beside it
    service.write("KeyError: 'tea'")
    service.answer(second, 200)
    service.answer(first, 500)
    service.write("behind it")
    third, _ = service.begin()
    service.write("well")
    service.answer(third, 404)
    assert service.usual(service.begin()[1]).lines == {"well"}


def test_a_traceback_that_good_requests_print_is_usual_in_its_frames(service: Service) -> None:
    harmless = ["Traceback (most recent call last):", '  File "a.py", line 7, in f', "KeyError: 'tea'"]
    number, _ = service.begin()
    service.write(*harmless)
    service.answer(number, 200)
    usual = service.usual(service.begin()[1])
    (stack,) = usual.stacks
    assert (stack.exception, stack.frames) == ("KeyError: 'tea'", [("a.py", 7, "f")])
    failed = Outcome(end=End.ANSWERED, status=500, log=harmless)
    assert find_cause(failed, failed).evidence
    assert not find_cause(failed, failed, usual=usual).evidence
    other = failed.model_copy(update={"log": [line.replace("7", "9") for line in harmless]})
    assert find_cause(other, other, usual=usual).evidence, "at another line it is another one"


def test_the_last_line_is_the_last_that_says_anything(service: Service) -> None:
    usual = UsualLog(lines=frozenset([plain_line("12:31 closing 4")]))
    log = ["price: no rate", "12:33 closing 9", "[now] 127.0.0.1:4 Closing", "Internal Server Error: /price"]
    failed = Outcome(end=End.ANSWERED, status=500, log=log)
    assert find_cause(failed, failed, usual=usual).evidence == [
        "the same last line in the log: 'price: no rate'"
    ]
    silent = failed.model_copy(update={"log": log[1:]})
    assert find_cause(silent, silent, usual=usual).evidence == []


def test_segments_that_ended_are_read_too_and_none_that_came_later(tmp_path: Path) -> None:
    service = Service(tmp_path, segment_bytes=1)
    assert service.usual(1).lines == frozenset()
    for name in ("a", "b"):
        number, _ = service.begin()
        service.write(name)
        service.answer(number, 200)
    _, failing = service.begin()
    number, _ = service.begin()
    service.write("later")
    service.answer(number, 200)
    assert "later" not in service.usual(failing).lines
