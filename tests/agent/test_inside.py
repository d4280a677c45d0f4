"""Draining rings: nothing that a service writes ends the thread that does it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inprocess.conftest import INPROCESS
from relive.agent.inside import InsideDrain
from relive.record.events import Event
from relive.record.reading import Recording

sys.path.insert(0, str(INPROCESS))
from relive_recorder.ring import Ring

sys.path.remove(str(INPROCESS))

RECORD = '[%d,%d,5,"note",1,1,3,%s]'


@pytest.mark.parametrize("fields", [f'{{"n":{1 << 80}}}', f'{{"n":[{{"deep":{-(1 << 70)}}}]}}'])
def test_what_a_recording_cannot_hold_is_left_out_and_the_rest_is_kept(tmp_path: Path, fields: str) -> None:
    ring = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1)
    seen: list[Event] = []
    drain = InsideDrain(
        tmp_path, tmp_path / "inside", keep_bytes=1 << 20, is_alive=lambda _pid: True, on_failure=seen.append
    )
    for number, text in enumerate(("{}", fields, "{}"), 1):
        ring.write(number, (RECORD % (number, number, text)).encode(), b"")
        drain.look()
    drain.close()
    assert [event.fields["own_seq"] for event in Recording(tmp_path / "inside").events()] == [1, 3]
