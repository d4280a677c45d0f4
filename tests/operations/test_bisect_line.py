"""A commit of the line that is asked, and what becomes of it meanwhile."""

from __future__ import annotations

from pathlib import Path

from relive.bisection.judgement import Judged, Judgement
from relive.model.commit import CommitId
from relive.operations.bisect_line import asking
from relive.store import Store
from store.builders import commit


def test_a_commit_that_was_dropped_meanwhile_is_skipped(tmp_path: Path) -> None:
    """The service goes on while its commits are bisected, and so does its retention."""
    store = Store(tmp_path / "store")
    line = [commit(store, capture=str(number)) for number in range(3)]

    def probe(name: CommitId) -> Judged:
        store.facts(name)
        return Judged(judgement=Judgement.GOOD, seen="it is there")

    store.thin("pay", lambda _lines: [line[1].id])
    said = [asking(probe, line)(at) for at in range(3)]
    store.close()
    assert [one.judgement for one in said] == [Judgement.GOOD, Judgement.SKIPPED, Judgement.GOOD]
    assert said[1].seen.endswith("names no commit: it was dropped meanwhile")
