"""Directories of an upper layer get back the times that the layers below tell."""

from __future__ import annotations

import os
from pathlib import Path

from relive.sandbox.directory_times import DirectoryTimes

THEN = (1_000_000_000, 2_000_000_000)


def test_what_the_uppermost_tree_says_counts(tmp_path: Path) -> None:
    upper, committed, laid = (tmp_path / name for name in ("upper", "committed", "laid"))
    for path in (
        "upper/d/e",
        "upper/only here",
        "upper/was a file",
        "committed/d",
        "laid/d/e",
        "laid/was a file",
    ):
        (tmp_path / path).mkdir(parents=True)
    (committed / "was a file").touch()
    for tree in (committed, laid):
        for path in sorted(tree.rglob("*"), reverse=True):
            os.utime(path, ns=THEN)
    os.utime(laid / "d", ns=(5, 5))
    before = {name: (upper / name).stat().st_mtime_ns for name in ("only here", "was a file")}
    times = DirectoryTimes([(upper, [committed, laid]), (tmp_path, [])])
    times.put_back()
    times.close()
    assert [(upper / name).stat().st_mtime_ns for name in ("d", "d/e")] == [THEN[1], THEN[1]]
    assert {name: (upper / name).stat().st_mtime_ns for name in before} == before


def test_a_link_in_an_upper_layer_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "tree/d").mkdir(parents=True)
    os.utime(tmp_path / "tree/d", ns=THEN)
    (tmp_path / "upper/d").symlink_to(tmp_path / "outside")
    times = DirectoryTimes([(tmp_path / "upper", [tmp_path / "tree"])])
    times.put_back()
    times.close()
    assert (tmp_path / "outside").stat().st_mtime_ns != THEN[1]
