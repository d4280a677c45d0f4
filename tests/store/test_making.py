"""New files are made in a few directories beside ``incoming``, each for a moment in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.store import making
from relive.store.atomic_io import FreshFile
from relive.store.making import made_places, make_place, place_of_now


def test_the_places_take_turns_and_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    incoming, now = tmp_path / "incoming", [0]
    monkeypatch.setattr(making.time, "monotonic_ns", lambda: now[0])
    found = []
    for _ in range(40):
        found.append(place_of_now(incoming))
        now[0] += 250_000_000
    assert len(set(found)) == 16 and found[:24] == found[16:]
    now[0] = 249_999_999
    assert place_of_now(incoming) == found[0]


def test_a_place_is_made_when_it_is_first_needed_and_again_when_it_is_gone(tmp_path: Path):
    incoming = tmp_path / "incoming"
    assert list(made_places(incoming)) == []
    for _ in range(2):
        fresh = FreshFile(incoming, "one")
        fresh.write(b"whole")
        fresh.publish(tmp_path / "placed")
        assert (tmp_path / "placed").read_bytes() == b"whole"
        for place in made_places(incoming):
            make_place(str(place))  # somebody else was first: no error
            place.rmdir()  # so nothing was left in it
    assert list(made_places(incoming)) == []
