"""The lines of one request are cut out of the output by its sizes before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.incidents.report.masking import Mask
from relive.incidents.report.printed import printed_during
from relive.model.incident import Incident
from relive.model.life_paths import LifePaths
from relive.recording.exchanges import Exchange, ExchangeEnd

from .builders import sighting


@pytest.fixture
def paths(tmp_path: Path) -> LifePaths:
    found = LifePaths(tmp_path)
    found.logs[0].parent.mkdir(parents=True, exist_ok=True)
    return found


def incident(**parts: object) -> Incident:
    log_end = parts.pop("log_end", None)
    return Incident(
        number=1, service="s", life="L", sighting=sighting(**parts), before=None, at=None, last_seen_wall_ns=0,
        log_end=log_end,
    )  # fmt: skip


def exchange(before: dict[str, int], after: dict[str, int]) -> Exchange:
    return Exchange(
        number=7, connection=1, request_head=b"GET / HTTP/1.1\r\n\r\n", started_seq=1, started_mono_ns=1,
        started_wall_ns=1, ended=ExchangeEnd.ANSWERED, log_offsets_before=before, log_offsets_after=after,
    )  # fmt: skip


def test_only_lines_of_the_request_are_told_also_those_right_after_its_answer(paths):
    out, err = paths.logs
    out.write_text("before\nduring\nafter\n")
    err.write_text("old\nTraceback\nKeyError: password=hunter2hunter2\nlate\nnext request\n")
    upto = err.read_text().index("late\n")
    # As the recording of another host names them.
    one = exchange(
        {"/far/io/stdout.log": 7, "/far/io/stderr.log": 4},
        {"/far/io/stdout.log": 14, "/far/io/stderr.log": 14},
    )
    found = printed_during(paths, one, incident(log_end=upto + 5), Mask())
    assert [(part.stream, part.lines) for part in found] == [
        ("stderr", ["Traceback", "KeyError: password=<secret>", "late"]),
        ("stdout", ["during"]),
    ]


def test_a_stack_that_another_request_printed_later_is_not_told(paths):
    """GIVEN an incident that is written down when others have failed by then."""
    stacks = [f"Error: of {name}\n    at f (/srv/a.js:{line}:1)\n" for line, name in enumerate("abc", 1)]
    paths.logs[1].write_text("".join(stacks))
    size = len(stacks[0])
    one = exchange({"stderr.log": 0}, {"stderr.log": size})
    (found,) = printed_during(paths, one, incident(log_end=3 * size), Mask())
    assert (found.lines, found.left_out) == (stacks[0].splitlines(), 0)
    late = exchange({"stderr.log": size}, {"stderr.log": size})
    (found,) = printed_during(paths, late, incident(log_end=3 * size), Mask())
    assert found.lines == stacks[1].splitlines()


def test_without_a_request_the_incident_says_where_it_begins(paths):
    paths.logs[1].write_text("old\nnew\n")
    (found,) = printed_during(paths, None, incident(log_begin=4, log_end=8), Mask())
    assert (found.stream, found.lines) == ("stderr", ["new"])
    assert printed_during(paths, None, incident(log_end=8), Mask()) == []


def test_of_much_the_last_lines_are_kept_and_the_rest_counted(paths):
    lines = [f"{number:07}" for number in range(100_000)]
    paths.logs[1].write_text("".join(f"{line}\n" for line in lines))
    (found,) = printed_during(paths, exchange({"stderr.log": 0}, {}), incident(), Mask())
    assert found.lines == lines[-200:]
    assert found.left_out == 8 * (100_000 - 200)


def test_what_was_freed_or_is_gone_is_no_error(paths):
    paths.logs[1].write_bytes(b"\0" * 5000 + b"rest\n")
    (found,) = printed_during(paths, exchange({"stderr.log": 10}, {}), incident(), Mask())
    assert found.lines == ["rest"]
    paths.logs[1].unlink()
    paths.logs[1].symlink_to("/etc/passwd")
    assert printed_during(paths, exchange({"stderr.log": 0}, {}), incident(), Mask()) == []
