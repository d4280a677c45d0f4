"""What processes did when they began, kept without end and without growing."""

from __future__ import annotations

from pathlib import Path

from relive.agent.capsule.start_events import StartEvents, beginning_for
from relive.recording.events import Event, EventKind


def event(kind: EventKind, seq: int, request: int = 0, data: bytes = b"", **fields: object) -> Event:
    return Event(seq, seq, seq, kind, 0, request, data, {"own_seq": seq, "lane": 1, **fields})


def begun(seq: int = 1, **fields: object) -> Event:
    return event(EventKind.PROCESS_STARTED, seq, **fields)


def call(seq: int, sql: str = "SELECT 1", request: int = 0, data: bytes = b"") -> Event:
    return event(EventKind.QUERY, seq, request, data, asked={"sql": sql})


def seqs(path: Path, pid: int) -> list[tuple[int, int]]:
    return [(one.fields["pid"], one.fields["own_seq"]) for one in beginning_for(path, pid)]


def test_calls_of_any_request_and_readings_of_none_are_kept(tmp_path):
    path = tmp_path / "b"
    StartEvents(path).add(
        [
            (7, begun()),
            (7, event(EventKind.CLOCK, 2, source="time.time", value=1.0)),
            (7, event(EventKind.CLOCK, 3, request=1, source="time.time", value=1.0)),
            (7, call(4, request=1, data=b"body")),
            (7, event(EventKind.LOG_RECORD, 5, text="x")),
            (7, event(EventKind.MISS, 6, asked={})),
        ]
    )
    assert seqs(path, 7) == [(7, 1), (7, 2), (7, 4)]
    assert beginning_for(path, 7)[-1].data == b"body"


def test_a_worker_comes_with_those_that_forked_it_and_an_unknown_one_with_its_sibling(tmp_path):
    path = tmp_path / "b"
    StartEvents(path).add(
        [
            (1, begun()),
            (1, call(2)),
            (5, begun(forked_from=1)),
            (5, call(2)),
            (9, begun(forked_from=1)),
            (9, call(2)),
        ]
    )
    assert seqs(path, 5) == [(1, 1), (1, 2), (5, 1), (5, 2)]
    assert seqs(path, 33) == seqs(path, 9)


def test_a_number_that_is_used_again_is_another_process(tmp_path):
    path = tmp_path / "b"
    StartEvents(path).add([(7, begun()), (7, call(2)), (7, begun()), (7, call(3))])
    assert seqs(path, 7) == [(7, 1), (7, 3)]


def test_it_ends_at_its_bounds_without_gaps_and_a_new_agent_goes_on(tmp_path):
    path = tmp_path / "b"
    kept = StartEvents(path)
    kept.add([(7, begun()), *((7, call(seq)) for seq in range(2, 600))])
    again = StartEvents(path)
    again.add([(7, call(seq)) for seq in range(600, 2000)])
    assert [seq for _, seq in seqs(path, 7)] == list(range(1, 1001))
    again.add([(8, begun()), (8, call(2, data=b"x" * (1 << 20))), (8, call(3))])
    assert seqs(path, 8) == [(8, 1)]


def test_of_very_many_processes_the_first_are_kept(tmp_path):
    path = tmp_path / "b"
    StartEvents(path).add([(pid, one) for pid in range(1, 101) for one in (begun(), call(2))])
    assert seqs(path, 64) == [(64, 1), (64, 2)]
    assert seqs(path, 65) == []


def test_a_file_that_is_damaged_costs_nothing_but_itself(tmp_path):
    path = tmp_path / "b"
    path.write_text("no event\n")
    StartEvents(path).add([(7, begun())])
    assert (path.read_text(), beginning_for(path, 7)) == ("no event\n", [])
    StartEvents(tmp_path / "gone/b").add([(7, begun())])
