"""What a branch cannot have as it was, decided from a commit and a journal."""

from __future__ import annotations

from types import SimpleNamespace

from relive.watching.processes.journal import CHANGED, CREATED, Journaled
from relive.watching.processes.since import sentences_of


def commit(*held: str, left_out: tuple[str, ...] = ()) -> SimpleNamespace:
    entries = [SimpleNamespace(path=path.lstrip("/")) for path in held]
    layer = SimpleNamespace(point="/", entries=entries, left_out=list(left_out))
    return SimpleNamespace(layers=[layer], taken_wall_ns=100)


def test_only_what_the_commit_does_not_hold_is_told(tmp_path):
    there = tmp_path / "there"
    there.touch()
    journal = Journaled(
        paths={
            "/held": (50, CHANGED),
            "/lost": (150, CHANGED),
            str(there): (150, CREATED),
            "/came-and-went": (150, CREATED),
        }
    )
    lost, made = sentences_of(commit("/held"), journal, 200, 200)
    assert "later: /lost." in lost
    assert f"not there then: {there}." in made


def test_what_the_commit_leaves_out_is_not_taken_for_new(tmp_path):
    there = tmp_path / "large"
    there.touch()
    journal = Journaled(paths={str(there): (50, CHANGED)})
    assert sentences_of(commit(left_out=(f"{there}\tit is large",)), journal, 200, 200) == []


def test_what_nobody_followed_later_is_told():
    journal = Journaled(gaps=[(50, "mnt\tbefore"), (150, "\tafter")])
    (told,) = sentences_of(commit(left_out=("mnt\tbefore",)), journal, 200, 200)
    assert told == "Not known, and seen as it is now: after."
    assert sentences_of(commit(), Journaled(), 200, 200) == []
    (silent,) = sentences_of(commit(), Journaled(), 200, 10**12)
    assert "since 1970-01-01 00:00:00 UTC" in silent
