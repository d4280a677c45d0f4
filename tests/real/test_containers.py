"""Containers of podman are committed under load and come back as containers, beside the original and beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.waiting import eventually

from .containers import IMAGE, Pods, consistent, relive
from .harness import PYTHON, Http, Refused, Relive, ask, counting

__all__ = ["relive"]


def test_a_commit_under_load_lives_twice_beside_the_original(relive: Relive, pods: Pods) -> None:
    """GIVEN a container that counts in memory, in a database and in a log, WHEN it is committed while it is asked to count, THEN
    no client notices; the second commit costs little; two containers of it go on from there, sealed; and the original goes on.
    """
    port = pods.serve("web")
    with counting(port) as load:
        first = relive.commit("podman:web")
        load.more(5)
        second = relive.commit("podman:web")
        load.more(5)
    facts = second.manifest.container
    assert facts is not None and (facts.image, facts.network) == (IMAGE, "host")
    assert second.manifest.parents == [first.id]
    lines = {line["id"]: line for line in relive("log")}
    assert lines[second.id]["new_bytes"] < lines[first.id]["new_bytes"] / 5

    copies = [pods.restore(relive, second.id, name, port) for name in ("one", "two")]

    def counted() -> list[int] | None:
        found = [consistent(ask(copy, "/state")) for copy in copies]
        return found if found[0] == found[1] else None

    # A request that was being handled amid the commit is handled to its end in each of them.
    counts = eventually(counted, "both have counted alike")
    assert counts[0] <= consistent(ask(port, "/state"))
    with Http(copies[0]) as client:
        assert client("POST", "/count")["count"] == counts[0] + 1
    assert consistent(ask(copies[1], "/state")) == counts[1]
    assert not pods.reaches_out("one") and not pods.reaches_out("two")
    with pytest.raises(Refused, match="already") as refused:
        pods.restore(relive, second.id, "two", port)
    assert refused.value.code == "usage"
    assert consistent(ask(copies[1], "/state")) == counts[1]


def test_real_podman_takes_what_is_exported(relive: Relive, pods: Pods, tmp_path: Path) -> None:
    """GIVEN a container that changed, made and deleted files, WHEN its commit is exported, THEN podman restores it with them."""
    shell = (
        "echo changed > /etc/passwd; rm /etc/group; rm -r /var; mkdir /var; echo new > /var/new; echo shm > /dev/shm/one;"
        "exec sleep 1000"
    )
    pods.start("web", "/bin/sh", "-c", shell)
    eventually(lambda: pods.run("exec", "web", "cat", "/proc/1/comm").strip() == "sleep", "all is changed")
    commit = relive.commit("podman:web")
    pods.run("rm", "--force", "--time=0", "web")
    archive = tmp_path / "web.tar.zst"
    relive("export", commit.id, str(archive), "--format=podman")
    pods.run("container", "restore", f"--import={archive}")
    said = pods.run(
        "exec",
        "web",
        "/bin/sh",
        "-c",
        "cat /etc/passwd /var/new /dev/shm/one; ls /etc/group 2>&1; cat /proc/1/comm",
    )
    assert said.split("\n")[:3] == ["changed", "new", "shm"]
    assert "No such file" in said and said.endswith("sleep\n")


def test_what_cannot_be_committed_is_said(relive: Relive, pods: Pods) -> None:
    """Unknown, paused and stopped containers: each with its cause and what to do."""
    for name, state in (("paused", "pause"), ("stopped", "stop")):
        pods.start(name, "/bin/sleep", "1000", options=("--stop-signal=KILL",))
        pods.run(state, name)
    wanted = {
        "paused": "podman unpause paused",
        "stopped": "podman start stopped",
        "nobody": "podman ps --all",
    }
    for name, remedy in wanted.items():
        with pytest.raises(Refused) as refused:
            relive.commit(f"podman:{name}")
        assert remedy in refused.value.remedy
        assert refused.value.code == ("target-unknown" if name == "nobody" else "target-undumpable")
    with pytest.raises(Refused, match="neither volumes nor an image"):
        relive("commit", "pid:1", "--with-volumes")


def test_an_image_that_is_gone_or_another_is_said_unless_the_commit_holds_it(
    relive: Relive, pods: Pods
) -> None:
    """GIVEN commits without and with their image, WHEN podman loses it, THEN only the second can be restored."""
    image = "localhost/relive-own:latest"
    pods.make_image(image, mark="the first")
    pods.start("web", PYTHON, "-c", "import time; time.sleep(1000)", image=image)
    without = relive.commit("podman:web")
    held = relive.commit("podman:web", "--with-image")
    again = relive.commit("podman:web", "--with-image")
    lines = {line["id"]: line for line in relive("log")}
    assert lines[again.id]["new_bytes"] < lines[held.id]["new_bytes"]  # the image is kept once
    pods.run("rm", "--force", "--time=0", "web")
    pods.run("rmi", "--force", image)

    with pytest.raises(Refused, match="is gone") as refused:
        relive("restore", without.id, "--as=podman", "--name=back")
    assert refused.value.code == "restore-unsupported" and "--with-image" in refused.value.remedy
    pods.make_image(image, mark="the second")
    with pytest.raises(Refused, match="another one now"):
        relive("restore", without.id, "--as=podman", "--name=back")
    relive("restore", again.id, "--as=podman", "--name=back")
    assert pods.run("exec", "back", "/bin/cat", "/etc/mark") == "the first"


def test_damaged_pages_are_said_and_only_what_was_begun_is_removed(relive: Relive, pods: Pods) -> None:
    """podman is at work already when the pages turn out to be damaged; a container that has the name is not its to remove."""
    pods.start("web", PYTHON, "-c", "import time; time.sleep(1000)")
    taken = relive.commit("podman:web")
    pack = max((relive.home / "store/packs").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    for name in ("back", "web"):
        with pytest.raises(Refused) as refused:
            relive("restore", taken.id, "--as=podman", f"--name={name}")
        assert refused.value.code == "object-corrupt"
        assert pods.run("ps", "--format={{.Names}}").split() == ["web"]
    assert pods.run("ps", "--all", "--format={{.Names}}").split() == ["web"]
    assert list((relive.home / "containers").iterdir()) == []


def test_volumes_are_copied_shared_or_refused(relive: Relive, pods: Pods) -> None:
    """A restored container writes to its own copy of what was committed; what was not is shared on demand only."""
    shell = "echo before > /data/one; exec sleep 1000"
    pods.start("web", "/bin/sh", "-c", shell, options=("--volume=kept:/data",))
    eventually(lambda: pods.run("exec", "web", "cat", "/proc/1/comm").strip() == "sleep", "it has written")
    plain = relive.commit("podman:web")
    held = relive.commit("podman:web", "--with-volumes")
    with pytest.raises(Refused, match="same files as the original") as refused:
        relive("restore", plain.id, "--as=podman", "--name=back")
    assert "volume kept" in refused.value.cause and "--with-volumes" in refused.value.remedy
    relive("restore", plain.id, "--as=podman", "--name=shared", "--share-volumes")
    relive("restore", held.id, "--as=podman", "--name=own")
    for name in ("shared", "own"):
        pods.run("exec", name, "/bin/sh", "-c", f"cat /data/one; echo {name} > /data/{name}")
    assert pods.run("exec", "web", "/bin/ls", "/data").split() == ["one", "shared"]
    assert pods.run("exec", "own", "/bin/ls", "/data").split() == ["one", "own"]


_APPENDING = """
import os, time
os.makedirs("/data/deep", exist_ok=True)
held, n = open("/data/deep/held", "w"), 0
while True:
    n += 1
    held.write(f"{n}\\n")
    held.flush()
    time.sleep(0.02)
"""


def test_an_open_file_of_a_volume_is_as_it_was_in_a_branch(relive: Relive, pods: Pods) -> None:
    """GIVEN a service that keeps a file of a volume open and writes on, WHEN its commit without volumes is restored, THEN the
    branch goes on from the file as it was, the host's is not touched, and the commit says what else of the volume it lacks.
    """
    pods.start("web", PYTHON, "-c", _APPENDING, options=("--volume=appended:/data",))
    volume = Path(pods.run("volume", "inspect", "--format={{.Mountpoint}}", "appended").strip())

    def numbers(text: str) -> list[int]:
        found = [int(line) for line in text.splitlines()]
        assert found == list(range(1, len(found) + 1))
        return found

    held = volume / "deep" / "held"
    eventually(lambda: held.exists() and len(numbers(held.read_text())) > 3, "it writes")
    commit = relive.commit("podman:web")
    layer = next(layer for layer in commit.manifest.layers if layer.point == "/data")
    assert [entry.path for entry in layer.entries] == ["deep", "deep/held"]
    assert layer.left_out == ["data\tof the files in it only those that were open are held"]
    later = len(numbers(held.read_text())) + 20
    eventually(lambda: len(numbers(held.read_text())) > later, "the original goes on")

    branch = relive.restore(commit)
    first = len(numbers(branch.exec("/bin/cat", "/data/deep/held")))
    assert 3 < first < later
    eventually(
        lambda: len(numbers(branch.exec("/bin/cat", "/data/deep/held"))) > first + 3, "it goes on from there"
    )
    assert branch.inner.facts.missing_files[0].path == "/data"
    numbers(held.read_text())
