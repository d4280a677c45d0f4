"""A store key from the environment: it seals, and neither a service nor a branch nor a file of Relive's ever has it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from relive.config import STORE_KEY
from relive.kernel import procfs
from support.waiting import LIMIT

from .harness import RELIVE, Refused, Relive

KEY = os.urandom(32)
WITHOUT = {STORE_KEY: ""}


def has_key(data: bytes) -> bool:
    return KEY in data or KEY.hex().encode() in data


def inherited(root: int) -> bool:
    """By a process, or the process 1 of its namespace."""
    stat = procfs.read_stat(root)
    assert stat is not None
    data = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (root, stat.parent)]
    return any(has_key(one) or STORE_KEY.encode() in one for one in data)


def test_a_key_of_the_environment_is_inherited_by_nobody_and_written_nowhere(relive: Relive) -> None:
    relive.environment[STORE_KEY] = KEY.hex()
    capsule = relive.run("sleep", "1000", KEPT="yes")
    assert b"KEPT=yes" in Path(f"/proc/{capsule.pid}/environ").read_bytes()
    one = relive.commit(capsule, measured=False)
    assert all(path.read_bytes()[:9] == b"RELPACK4\1" for path in (relive.settings.store / "packs").iterdir())
    with pytest.raises(Refused) as caught:
        relive("restore", one.id, environment=WITHOUT)
    assert (caught.value.code, STORE_KEY in caught.value.cause) == ("key-missing", True)

    branch = relive.restore(one)
    assert not inherited(branch.root)
    said = subprocess.run(
        [RELIVE, "exec", branch.id, "--", "env"],
        env=relive.environment,
        stdout=subprocess.PIPE,
        timeout=LIMIT,
        check=True,
    ).stdout
    assert b"PATH=" in said
    assert not has_key(said)
    assert STORE_KEY.encode() not in said
    branch.stop()

    # An agent that is started later, by a command without the key, says what it lacks, and takes it from a commit with it.
    relive.end_agent(relive.settings.capsules / capsule.name / capsule.life)
    relive("ps", environment=WITHOUT)
    with pytest.raises(Refused) as caught:
        relive("commit", capsule.name, environment=WITHOUT)
    assert (caught.value.code, STORE_KEY in caught.value.remedy) == ("key-missing", True)
    two = relive.commit(capsule, measured=False)
    assert two.manifest.parents == [one.id]
    assert relive("verify", "--data")["problems"] == []
    assert not inherited(capsule.pid)

    files = [path for path in relive.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10
    assert [path for path in files if has_key(path.read_bytes())] == []
