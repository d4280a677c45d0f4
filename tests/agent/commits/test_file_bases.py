"""What files held before they changed is freed when no commit needs it."""

from __future__ import annotations

import pytest

from relive.agent.commits.file_bases import unneeded_bases
from relive.checkpoint.journal import JournalRecord, RecordKind


def record(serial: int, kind: RecordKind = RecordKind.REGULAR) -> JournalRecord:
    return JournalRecord(serial, 100 * serial, kind, 0o100644, 0, 0, 0, 0, f"/data/{serial}", "")


@pytest.mark.parametrize(
    ("oldest_ns", "has_earlier", "unneeded"),
    [
        (None, False, [1, 3]),  # nothing is left
        (250, False, [1]),  # older than the oldest commit that is left
        (50, False, []),
        (250, True, []),  # commits of earlier lives need all of them
        (None, True, []),
    ],
)
def test_bases_older_than_all_commits_go(
    oldest_ns: int | None, has_earlier: bool, unneeded: list[int]
) -> None:
    records = [record(1), record(2, RecordKind.ABSENT), record(3)]
    assert unneeded_bases(records, oldest_ns=oldest_ns, has_earlier=has_earlier) == unneeded
