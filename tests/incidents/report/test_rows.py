"""Rows are found wherever the recorder put them."""

from __future__ import annotations

import json

from relive.incidents.report.rows import fetched
from relive.recording.events import Event, EventKind


def query(data: bytes = b"", **answer: object) -> Event:
    return Event(1, 0, 0, EventKind.QUERY, 0, 1, data, {"answer": answer})


def rows(data: bytes = b"", **fields: object) -> Event:
    return Event(2, 0, 0, EventKind.ROWS, 0, 1, data, fields)


def test_rows_of_the_answer_of_its_data_and_of_later_events_are_put_together():
    assert fetched(query(rows=[[1]]), [rows(rows=[[2], [3]])]) == ([[1], [2], [3]], 3)
    assert fetched(query(json.dumps([[1], [2]]).encode(), rows_cut=7), []) == ([[1], [2]], 9)


def test_no_word_about_rows_is_another_thing_than_none_of_them():
    assert fetched(query(rowcount=3), []) is None
    assert fetched(query(rows=[]), []) == ([], 0)


def test_data_that_holds_no_rows_is_passed_over():
    assert fetched(query(b"{"), [rows(b"[" * 100_000), rows(b'{"a": 1}'), rows(rows="x")]) is None
