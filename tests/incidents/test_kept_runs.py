"""Runs are kept in order, come in pages, and the oldest go."""

from __future__ import annotations

import pytest

from relive.errors import NotFound
from relive.incidents import runs as module
from relive.incidents.runs import RunPart, Runs


def add(runs, service="pay", incident=None):
    return runs.add(
        kind="replay",
        service=service,
        incident=incident,
        began_wall_ns=1,
        seconds=0.5,
        times=2,
        reproduced=1,
        verdict="diverged",
        result='{"a": 1}',
    )


def numbers(rows):
    return [row.number for row in rows]


def test_only_its_owner_can_read_what_runs_showed(tmp_path):
    add(Runs(tmp_path / "runs.sqlite"))
    assert (tmp_path / "runs.sqlite").stat().st_mode & 0o777 == 0o600


def test_pages_follow_each_other_while_more_are_added(tmp_path):
    runs = Runs(tmp_path / "home" / "runs.sqlite")
    for incident in (1, 2, 1, 1):
        add(runs, incident=incident)
    first = runs.page(service=None, incident=1, after=None, limit=2)
    assert numbers(first) == [4, 3]
    add(runs, incident=1)
    assert numbers(runs.page(service=None, incident=1, after=3, limit=2)) == [1]
    assert numbers(runs.page(service="other", incident=None, after=None, limit=9)) == []


def test_one_comes_with_its_result(tmp_path):
    runs = Runs(tmp_path / "runs.sqlite")
    row, result = runs.get(add(runs))
    assert (row.service, row.times, row.reproduced, row.verdict, result) == (
        "pay",
        2,
        1,
        "diverged",
        '{"a": 1}',
    )
    with pytest.raises(NotFound):
        runs.get(2)


def test_the_oldest_go_and_their_numbers_do_not_come_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 2)
    runs = Runs(tmp_path / "runs.sqlite")
    assert [add(runs) for _ in range(4)] == [1, 2, 3, 4]
    assert numbers(runs.page(service=None, incident=None, after=None, limit=9)) == [4, 3]


def test_one_that_was_asked_for_with_a_mark_is_found_by_it(tmp_path):
    runs = Runs(tmp_path / "runs.sqlite")
    add(runs)
    assert runs.marked("0" * 32) is None
    facts = dict.fromkeys(("began_wall_ns", "seconds", "times", "reproduced"), 1)
    runs.add(kind="replay", service="pay", incident=1, verdict="v", result='{"b": 2}', mark="0" * 32, **facts)
    assert runs.marked("0" * 32) == '{"b": 2}'


def test_the_whole_takes_the_place_of_its_parts(tmp_path):
    runs = Runs(tmp_path / "runs.sqlite")
    one, other = "1" * 32, "2" * 32
    for number in (2, 1, 2):
        runs.add_part(one, RunPart(number, "incident 1", 5, 0.5, "{}"))
    runs.add_part(other, RunPart(1, "incident 2", 6, 0.5, "{}"))
    assert runs.parts(one) == [RunPart(number, "incident 1", 5, 0.5, "{}") for number in (1, 2)]
    facts = dict.fromkeys(("began_wall_ns", "seconds", "times", "reproduced"), 1)
    runs.add(kind="replay", service="pay", incident=1, verdict="v", result="{}", mark=one, **facts)
    assert runs.unfinished() == [other]
    runs.forget_parts(other)
    assert runs.unfinished() == []
