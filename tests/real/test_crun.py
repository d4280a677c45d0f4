"""Containers of crun, podman's runtime of first choice: it has CRIU name mounts otherwise than runc does."""

from __future__ import annotations

from pathlib import Path

import pytest

from .containers import Pods, consistent, relive
from .harness import TOOLS, Relive, ask, counting

__all__ = ["relive"]

_CRUN = TOOLS / "newer" / "crun"
# It refuses a machine where control groups of version 2 stand beside those of version 1, so it sees the latter alone.
_ALONE = """#!/bin/sh
exec unshare --mount --propagation slave sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"' {} "$@"
"""

pytestmark = pytest.mark.skipif(not _CRUN.exists(), reason="needs crun with CRIU: scripts/setup/newer.sh")


@pytest.fixture
def crun(tmp_path: Path) -> Path:
    """By this name podman, and Relive, know what it is."""
    made = tmp_path / "crun"
    made.write_text(_ALONE.format(_CRUN))
    made.chmod(0o755)
    return made


def test_it_is_committed_and_restored_by_relive_and_by_podman(
    relive: Relive, pods: Pods, crun: Path, tmp_path: Path
) -> None:
    """GIVEN a container of crun that counts, WHEN it is committed, THEN it counts on without podman, with podman and crun, and from
    an archive that podman restores by itself.
    """
    port = pods.serve("web", runtime=crun)
    with counting(port) as load:
        commit = relive.commit("podman:web")
        load.more(5)
    branch = relive.restore(commit, port)
    count = consistent(ask(branch.ports[port], "/state"))
    assert 0 < count < load.last
    counts = (count - 1, count)  # a request on its way is lost where connections are closed
    back = pods.restore(relive, commit.id, "back", port)
    assert consistent(ask(back, "/state")) in counts
    assert pods.run("inspect", "--format={{.OCIRuntime}}", "back").strip() == str(crun)
    assert branch.seal().is_intact and not pods.reaches_out("back")
    assert consistent(ask(port, "/state")) == load.last

    # As Debian 12 builds it, which runc has to stand in for.
    crun.write_text(crun.read_text().replace("exec", '[ "$1" = --version ] && exec echo "no CRIU"\nexec', 1))
    instead = pods.restore(relive, commit.id, "instead", port)
    assert consistent(ask(instead, "/state")) in counts
    assert pods.run("inspect", "--format={{.OCIRuntime}}", "instead") == "runc\n"

    archive = tmp_path / "web.tar"
    relive("export", commit.id, str(archive), "--format=podman")
    pods.run("rm", "--force", "--time=0", "web")
    pods.run("container", "restore", f"--import={archive}", "--tcp-established", "--file-locks")
    assert consistent(ask(port, "/state")) in counts
