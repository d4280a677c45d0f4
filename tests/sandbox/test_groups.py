"""Control groups of branches, and which of them are left over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.sandbox import cgroups


def test_a_branch_that_is_made_while_others_are_swept_keeps_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN groups of a living branch and of none; WHEN another process makes a branch just as they are listed; THEN both stay."""
    branches, groups = tmp_path / "branches", tmp_path / "groups" / "relive-branches"
    for name in ("living", "gone", "new"):
        (groups / f"ab-{name}").mkdir(parents=True)
    (groups / "cd-another-home's").mkdir()
    (branches / "living").mkdir(parents=True)
    really = Path.iterdir

    def listed(self: Path) -> Iterator[Path]:
        (branches / "new").mkdir(exist_ok=True)
        yield from list(really(self))

    monkeypatch.setattr(cgroups, "_hierarchies", lambda: [tmp_path / "groups"])
    monkeypatch.setattr(Path, "iterdir", listed)
    cgroups.sweep_groups("ab-", branches)
    assert {path.name for path in really(groups)} == {"ab-living", "ab-new", "cd-another-home's"}
