"""A service that means harm, or has bad luck: what it may not touch is neither copied nor overwritten by Relive."""

from __future__ import annotations

import os
from pathlib import Path

from support.waiting import eventually

from .harness import Commit, Relive
from .likeness import likeness
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


SWAPS = """
import random, threading, time
pace = 0.001  # each state stands for as long as each other; without it four processes of this one take the machine
d, is_done, tries = Path({place!r}), False, dict(opened=0, refused=0)
def swap():
    while not is_done:
        for how in (lambda: (d/'dir').rename(d/'away'), lambda: (d/'dir').symlink_to(d.parent/'secrets'),
                    lambda: (d/'dir').unlink(), lambda: (d/'away').rename(d/'dir')):
            how(); time.sleep(pace)
def touch():
    while not is_done:
        for how in (lambda: w(d/'dir/f', 'own'), lambda: os.truncate(d/'dir/g', 3),
                    lambda: os.chmod(d/'dir/f', random.choice((0o600, 0o644))),
                    lambda: (d/'dir/new').touch(), lambda: (d/'dir/new').unlink()):
            try:
                how(); tries['opened'] += 1
            except OSError:
                tries['refused'] += 1
            time.sleep(pace)
ts = [threading.Thread(target=swap), threading.Thread(target=touch), threading.Thread(target=touch)]
[t.start() for t in ts]
"""


def test_links_swapped_in_at_the_last_moment_lead_relive_nowhere(relive: Relive, place: Path) -> None:
    """Neither process 1, which keeps what was there, nor a commit, nor a branch copies or overwrites what they lead to."""
    secrets, own = place / "secrets", place / "own"
    secrets.mkdir()
    for name in ("f", "g", "h"):
        (secrets / name).write_text("SECRET")
    (own / "dir").mkdir(parents=True)
    for name in ("f", "g"):
        (own / "dir" / name).write_text("own")
    for path in (own, own / "dir", own / "dir/f", own / "dir/g"):
        os.chown(path, 65534, 65534)
    secrets.chmod(0o700)
    before = likeness(secrets)
    service = Obedient(relive, user="nobody")
    service(HELPERS)
    relive.commit(service.capsule)
    service(SWAPS.format(place=str(own)))
    commits = []
    for _ in range(4):
        done = service("said = tries['opened']")
        eventually(lambda: service("said = tries['opened']") > done + 20, "it goes on")  # noqa: B023
        commits.append(relive.commit(service.capsule))
    for commit in commits:
        assert not {path for path in held_paths(commit) if path.startswith(f"{secrets}/")}
        branch = relive.restore(commit)
        found = branch.exec("sh", "-c", f"grep -rls SECRET {own}; ls -R {own} | grep -x h; true")
        assert found == "", found
        branch.stop()  # it swaps on, too, and takes a processor for it
    service("is_done = True; [t.join() for t in ts]")
    assert service("said = tries['refused']") > 0
    assert likeness(secrets) == before
    bases = relive.home / "capsules" / "service" / service.capsule.life / "files" / "base"
    assert not [base for base in bases.iterdir() if base.is_file() and b"SECRET" in base.read_bytes()]
