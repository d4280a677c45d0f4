"""Where a file can stand, decided without a kernel."""

from __future__ import annotations

import pytest

from relive.watching.processes.following import TrackedMount, names_of

ROOT = TrackedMount("/", "/", "ext4", "8:1", is_writable=True)
BOUND = TrackedMount("/srv/data", "/data", "ext4", "8:1", is_writable=True)
OTHER = TrackedMount("/", "/mnt", "xfs", "8:2", is_writable=True)


@pytest.mark.parametrize(
    ("path", "through", "names"),
    [
        ("/etc/passwd", ROOT, ["/etc/passwd"]),
        ("/srv/data/x", ROOT, ["/srv/data/x", "/data/x"]),
        ("/srv/database", ROOT, ["/srv/database"]),
        ("/data/x", BOUND, ["/srv/data/x", "/data/x"]),
        ("/data", BOUND, ["/srv/data", "/data"]),
        ("/mnt/y", OTHER, ["/mnt/y"]),
        ("/mnt", OTHER, ["/mnt"]),
        ("/", ROOT, ["/"]),
    ],
)
def test_a_file_stands_wherever_its_file_system_is_mounted(path, through, names):
    assert names_of(path, through, [ROOT, BOUND, OTHER]) == names
