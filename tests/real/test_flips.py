"""A bit is flipped in a file of each kind that a home holds: found by verify, refused or healed when used, or proven harmless.

The outcome of each is a line of the table in docs/upkeep.md.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from .harness import Relive
from .test_share_incident import fail
from .test_stubs import servers

__all__ = ["servers"]

# Patterns below the home, and whether verify has to find each flip. What is healed on opening need not be found any more.
KINDS = {
    "store/manifests/*.json": True,
    "store/placements/*": True,
    "store/packs/*": True,
    "store/tags/*": True,
    "store/index.sqlite": False,
    "store/trees/*/*/tree/**/*": True,
    "store/trees/*/*/seal": True,
    "store/laid/*": False,
    "incidents/1.json": True,
    "incidents/1.package.json": True,
    "incidents/1.events.jsonl": True,
    "incidents/1.beginning.jsonl": True,
    "incidents/1.launch.json": True,
    "incidents/1.request": True,
    "incidents/1.sums": True,
    "incidents/index/incidents.sqlite": False,
    "incidents/last-number": False,
    "capsules/*/2*/recording/*.events": True,
    "capsules/*/2*/inside/*.events": True,
    "capsules/*/2*/egress/*.events": True,
}
# Not beside each incident; tests/maintenance/test_incident_check.py flips these too.
SOMETIMES = ("package.json", "events.jsonl", "beginning.jsonl", "launch.json", "request", "sums")
FLIPS = 6  # in each


def told(relive: Relive) -> dict[str, Any]:
    """What commands say of the home; an error is told by its code."""

    def ask(*words: str) -> Any:
        done = relive.say(*words)
        value = json.loads(done.stdout)
        return value if done.returncode == 0 else {"refused": value["error"]["code"]}

    log = ask("log")
    for line in log if isinstance(log, list) else []:
        # These alone are nowhere else, so a line made anew lacks them.
        for name in (
            "durable_us",
            "new_bytes",
        ):
            line.pop(name)
    return {
        "log": log,
        "incidents": ask("incidents"),
        "incident": ask("show", "1"),
        "resolved": ask("show", "answered"),
        "tag": ask("show", "kept"),
        "branch": restored(relive),
    }


def restored(relive: Relive) -> Any:
    """A file that the service wrote, as a branch of the tagged commit has it."""
    done = relive.say("restore", "kept")
    value = json.loads(done.stdout)
    if done.returncode:
        return {"refused": value["error"]["code"]}
    try:
        answer = relive.say("exec", value["id"], "--", "cat", "/run/proof")
        return answer.stdout
    finally:
        relive("stop", value["id"])


def is_refused(value: Any) -> bool:
    return isinstance(value, dict) and "refused" in value


def is_poorer(value: Any, whole: Any) -> bool:
    """What is told is right, and less: parts are None, or absent; notes say why."""
    if value is None or value == whole:
        return True
    if isinstance(value, dict) and isinstance(whole, dict):
        return all(
            name == "notes" or (name in whole and is_poorer(one, whole[name])) for name, one in value.items()
        )
    if isinstance(value, list) and isinstance(whole, list):
        return all(any(is_poorer(one, other) for other in whole) for one in value)
    return False


def flip(path: Path, chance: random.Random) -> bytes:
    whole = path.read_bytes()
    data = bytearray(whole)
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    mode = path.stat().st_mode
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(mode & 0o7777)
    return whole


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_flip_in_each_kind_of_file_is_found_or_harmless(relive: Relive, servers: dict[str, int]) -> None:
    fail(relive, servers)
    relive("stop", "answered")
    relive("tag", "kept", "answered")
    before = told(relive)
    assert not any(is_refused(one) for one in before.values()), before
    relive("verify", "--data")
    chance = random.Random(20261122)
    for pattern, wanted in KINDS.items():
        for _ in range(FLIPS):
            paths = [
                path
                for path in sorted(relive.home.glob(pattern))
                if path.is_file() and path.stat().st_size and ".damaged-" not in str(path)
            ]
            assert paths or pattern.removeprefix("incidents/1.") in SOMETIMES, (
                f"no file of the kind {pattern}"
            )
            if not paths:
                continue
            path = chance.choice(paths)
            whole = flip(path, chance)
            found = relive.say("verify", "--data").returncode
            after = told(relive)
            outcome = {"found"} if found == 7 else set()
            for name, value in after.items():
                if is_refused(value):
                    outcome.add("refused")
                elif value != before[name]:
                    if name == "incident" and pattern.startswith("capsules/"):
                        # Sums of what can be read are smaller; records have checksums.
                        outcome.add("left out")
                        continue
                    assert is_poorer(value, before[name]), f"{path}: {name} is silently another"
                    outcome.add("left out")
            print(f"{pattern:44} {', '.join(sorted(outcome)) or 'healed or harmless'}", flush=True)
            assert found in (0, 7), path
            assert found == 7 or not wanted, f"{path} was changed, and verify says well"
            if path.exists() and "store/trees" not in pattern:  # these were laid out anew
                mode = path.stat().st_mode
                path.chmod(0o600)
                path.write_bytes(whole)
                path.chmod(mode & 0o7777)
            if path.name.endswith(".sqlite"):
                for helper in path.parent.glob(f"{path.name}-*"):
                    helper.unlink()
            os.sync()
