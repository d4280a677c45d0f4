"""A service that means harm, or has bad luck: what it may not touch is neither copied nor overwritten by Relive."""

from __future__ import annotations

import os
from pathlib import Path

from .harness import Commit, Relive
from .obedient import HELPERS, Obedient


def held_paths(commit: Commit) -> set[str]:
    return {
        layer.point.rstrip("/") + "/" + entry.path
        for layer in commit.manifest.layers
        for entry in layer.entries
    }


def test_what_a_service_may_not_change_is_not_copied(relive: Relive, place: Path) -> None:
    secret = place / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    (place / "own").mkdir()
    os.chown(place / "own", 65534, 65534)
    service = Obedient(relive, user="nobody")
    service(HELPERS)
    relive.commit(service.capsule)
    tries = service(
        f"""
d, said = Path({str(place)!r}), []
(d/'own/link').symlink_to(d/'secret')
for what in (
    lambda: open(d/'secret', 'r+'), lambda: open(d/'own/link', 'w'), lambda: (d/'secret').unlink(),
    lambda: (d/'secret').rename(d/'own/x'),
    lambda: (d/'secret').chmod(0o666), lambda: os.link(d/'secret', d/'own/y'), lambda: open('/etc/shadow', 'r+'),
    lambda: os.truncate(d/'secret', 0), lambda: os.utime(d/'own/link'), lambda: Path('/etc').rename('/etcetera'),
    lambda: open(d/'new', 'w'),
):
    try:
        what()
        said.append('done')
    except PermissionError:
        said.append('refused')
"""
    )
    assert set(tries) == {"refused"}
    after = relive.commit(service.capsule)
    refused = {str(secret), "/etc/shadow", "/etc", str(place / "new")}
    assert not refused & held_paths(after)
    bases = relive.home / "capsules" / "service" / service.capsule.life / "files" / "base"
    assert not [base for base in bases.iterdir() if base.is_file() and base.read_bytes() == b"secret"]
