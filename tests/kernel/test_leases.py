"""The leases that the kernel tells of."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from relive.kernel.leases import leased_files

TEXT = """\
1: POSIX  ADVISORY  WRITE 2713 fe:00:1048593 0 EOF
2: LEASE  ACTIVE    WRITE 3100 08:11:4711 0 EOF
3: FLOCK  ADVISORY  WRITE 2713 fe:00:1048594 0 EOF
4: LEASE  BREAKING  READ  3100 fe:00:12 0 EOF
4: -> LEASE  BREAKING  READ  3100 fe:00:13 0 EOF
5: DELEG  ACTIVE    READ  3101 fe:00:14 0 EOF
"""


def test_leases_are_told_from_locks(tmp_path: Path):
    locks = tmp_path / "locks"
    locks.write_text(TEXT)
    fe = os.makedev(0xFE, 0)
    assert leased_files(locks) == {(os.makedev(8, 0x11), 4711), (fe, 12)}
    assert leased_files(tmp_path / "none") == frozenset()


def test_one_of_our_own_is_found(tmp_path: Path):
    with (tmp_path / "file").open("w") as file:
        facts = os.fstat(file.fileno())
        assert (facts.st_dev, facts.st_ino) not in leased_files()
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert (facts.st_dev, facts.st_ino) in leased_files()
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
