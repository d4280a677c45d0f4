"""What a branch's processes write is taken from their rings, whatever else lies there."""

from __future__ import annotations

import sys
from pathlib import Path

from inprocess.conftest import INPROCESS
from relive.recording.events import EventKind
from relive.replay.ring_collector import BranchDrain

sys.path.insert(0, str(INPROCESS))
from relive_recorder.ring import Ring

sys.path.remove(str(INPROCESS))

ENDED = b'[%d,%d,5,"handling-ended",1,1,3,{"status":200}]'


def test_events_of_all_rings_in_the_order_of_time_and_what_is_none_is_told_once(tmp_path: Path) -> None:
    first, second = (Ring(str(tmp_path / f"{pid}-a.ring"), 1 << 16, 2) for pid in (7, 8))
    (tmp_path / "9-b.ring").write_text("no ring")
    (tmp_path / "other.ring").write_text("not even a name of one")
    drain = BranchDrain(tmp_path)
    first.write(1, ENDED % (1, 20), b"")
    drain.drain()
    second.write(1, ENDED % (1, 10), b"")
    assert drain.has_handled(7, 3)
    assert not drain.has_handled(8, 3)
    drain.close()
    assert [(event.fields["pid"], event.kind) for event in drain.events] == [
        (8, EventKind.HANDLING_ENDED),
        (7, EventKind.HANDLING_ENDED),
    ]
    assert len(drain.troubles) == 1
    assert "9-b.ring" in drain.troubles[0]


def test_what_was_overwritten_is_told(tmp_path: Path) -> None:
    ring = Ring(str(tmp_path / "7-a.ring"), 4096, 2)
    for number in range(200):
        ring.write(number + 1, ENDED % (number + 1, number), b"")
    drain = BranchDrain(tmp_path)
    drain.close()
    assert drain.events[-1].seq == 200
    assert "were overwritten before they were read" in drain.troubles[0]
