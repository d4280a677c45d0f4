"""``push``, ``pull``, ``export`` and ``import`` as commands: what they say, in words and in JSON."""

from __future__ import annotations

import json

import pytest
from cryptography.fernet import Fernet

from containers.archive.checkpoints import FIRST, SECOND, contents_of, plain
from store.builders import commit


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/remote"


@pytest.fixture
def elsewhere(home, tmp_path, monkeypatch):
    """Makes the next commands those of another host, which has the same keys."""

    def go():
        monkeypatch.setenv("RELIVE_HOME", str(tmp_path / "elsewhere"))
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "keys").symlink_to(home / "keys")

    return go


def test_a_state_is_shared_by_its_id(relive, store, url, elsewhere):
    """Push, send the id, pull; the id is all that stdout holds."""
    one = commit(store)
    pushed = relive("push", url, "pay")
    assert (pushed.status, pushed.out) == (0, f"{one.id}\n")
    assert pushed.err.startswith(f"Pushed to {url}: ")
    assert "in 1 parts" in pushed.err
    assert relive("push", url, "pay").err == f"{url} has it already.\n"
    elsewhere()
    pulled = relive("pull", url, one.id, "--force")
    assert (pulled.status, pulled.out) == (0, f"{one.id}\n")
    assert pulled.err.splitlines()[-1] == f"Hint: keep it with `relive tag NAME {one.id[:10]}`"
    assert relive("pull", url, one.id[:9]).err.startswith("It is here already.")
    assert relive("show", one.id).status == 0


def test_a_tag_goes_along_and_names_the_commit_on_the_other_side(relive, store, url, elsewhere):
    one = commit(store)
    store.tag("best", one.id)
    assert relive("push", url, "best").err.splitlines()[-1] == "The tag best names it there."
    elsewhere()
    assert json.loads(relive("pull", url, "best", "--force", "--json").out)["tag"] == "best"
    assert json.loads(relive("tag", "--json").out) == [{"tag": "best", "id": one.id}]


def test_a_tag_that_names_another_commit_here_is_told_before_anything_travels(
    relive, home, store, url, elsewhere
):
    one, two = commit(store), commit(store, capture="2")
    store.tag("best", one.id)
    relive("push", url, "best")
    store.tag("best", two.id, force=True)
    said = relive("pull", url, "best")
    assert (said.status, said.out) == (2, "")
    assert "the tag 'best' exists" in said.err


def test_the_facts_of_a_push_and_a_pull_in_json(relive, store, url, elsewhere):
    one = commit(store)
    pushed = json.loads(relive("push", url, one.id, "--json").out)
    assert pushed == {
        "id": one.id,
        "remote": url,
        "tag": None,
        "is_new": True,
        "sent_parts": 1,
        "sent_bytes": pushed["sent_bytes"],
        "held_parts": 0,
        "incidents": [],
        "sent_incidents": [],
    }
    elsewhere()
    pulled = json.loads(relive("pull", url, one.id, "--force", "--tag", "t", "--json").out)
    assert pulled == {
        "id": one.id,
        "remote": url,
        "tag": "t",
        "is_new": True,
        "fetched_parts": 1,
        "fetched_bytes": pushed["sent_bytes"],
        "held_parts": 0,
        "incidents": [],
        "new_incidents": [],
    }


def test_a_pull_onto_a_host_that_cannot_run_it_says_what_lacks(relive, store, url, elsewhere, monkeypatch):
    one = commit(store)
    relive("push", url, one.id)
    elsewhere()
    monkeypatch.setattr("platform.release", lambda: "4.19.0")
    said = relive("pull", url, one.id)
    assert said.status == 4
    assert "the kernel is 4.19.0, the commit's was 6.1" in said.err
    assert "--force" in said.err


@pytest.mark.parametrize("url", ["nowhere", "s3:/x"])
def test_what_is_no_remote_is_refused(relive, store, url):
    commit(store)
    assert relive("push", url, "pay").status == 2
    assert relive("pull", url, "pay").status == 2


def test_a_pull_from_nowhere_says_so(relive, url):
    said = relive("pull", url, "abcd", "--json")
    assert said.status == 11
    assert json.loads(said.out)["error"]["code"] == "remote-unknown"


def test_a_state_goes_through_a_file(relive, store, tmp_path, elsewhere):
    one = commit(store)
    exported = relive("export", "pay", "pay.relive")
    assert (exported.status, exported.out) == (0, f"{one.id}\n")
    assert exported.err.startswith("Wrote pay.relive: ")
    assert exported.err.endswith(", not encrypted.\n")
    elsewhere()
    facts = json.loads(relive("import", "pay.relive", "--force", "--tag", "t", "--json").out)
    assert facts == {
        "id": one.id,
        "file": "pay.relive",
        "tag": "t",
        "is_new": True,
        "taken_parts": 1,
        "taken_bytes": facts["taken_bytes"],
        "held_parts": 0,
        "incidents": [],
        "new_incidents": [],
    }
    assert relive("import", "pay.relive").err.startswith("It is here already.")


def test_an_encrypted_file_needs_its_keys(relive, store, tmp_path, elsewhere, monkeypatch):
    one = commit(store)
    (tmp_path / "keys").write_bytes(Fernet.generate_key() + b"\n")
    assert relive("export", "pay", "pay.relive", "--encrypt").status == 7
    monkeypatch.setenv("RELIVE_EXPORT_KEYS", str(tmp_path / "keys"))
    facts = json.loads(relive("export", "pay", "pay.relive", "--encrypt", "--json").out)
    assert (facts["id"], facts["encrypted"]) == (one.id, True)
    elsewhere()
    assert (
        relive("import", "pay.relive", "--force", "--key-file", str(tmp_path / "keys")).out == f"{one.id}\n"
    )
    monkeypatch.delenv("RELIVE_EXPORT_KEYS")
    said = relive("import", "pay.relive", "--json")
    assert json.loads(said.out)["error"]["code"] == "key-missing"


def test_keys_without_encryption_are_a_mistake(relive, store, tmp_path):
    commit(store)
    assert relive("export", "pay", "x", "--key-file", "keys").status == 2
    assert not (tmp_path / "x").exists()


# -- containers' checkpoint archives -----------------------------------------------------------------------------------------


def test_a_container_goes_in_and_out(relive, tmp_path):
    """What podman wrote becomes a commit that is listed, shown and written back; the second one is cheap."""
    assert relive("import", str(FIRST), "--tag", "first").status == 0
    said = relive("import", str(SECOND))
    assert said.status == 0 and " in 3 parts; 6 parts were here.\n" in said.err
    second = said.out.strip()
    shown = relive("show", second).out
    assert "Target:   counter (/bin/counter)\n" in shown
    assert "Engine:   podman, container " in shown
    assert ", image localhost/counter:latest, runtime runc\n" in shown
    assert "Files of the checkpoint archive beside its images: 8\n" in shown
    assert "\n  rootfs-diff.tar  3.0 KiB" in shown
    facts = json.loads(relive("show", second, "--json").out)
    assert facts["container"]["engine"] == "podman" and facts["target"]["kind"] == "container"
    assert [line["trigger"] for line in json.loads(relive("log", "--json").out)] == ["import", "import"]
    assert relive("verify", "--data").status == 0
    assert relive("export", second, "x.tar", "--format", "podman").err.startswith("Wrote x.tar: ")
    assert relive("export", second, "x", "--format", "podman", "--compress", "zstd").status == 0
    assert contents_of((tmp_path / "x.tar").read_bytes()) == contents_of(plain(SECOND))
    assert relive("import", "x").err.startswith("It is here already.")


def test_a_service_that_is_no_container_is_written_to_be_looked_into(relive, store):
    commit(store)
    said = relive("export", "pay", "x.tar", "--format", "podman")
    assert said.status == 2 and "--format checkpointctl" in said.err
    said = relive("export", "pay", "x.tar", "--format", "checkpointctl")
    assert said.status == 0 and "no engine can restore it" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x.tar", "--format", "podman", "--encrypt"], "not encrypted"),
        (["x", "--format", "podman"], "does not say how to compress"),
        (["x.relive", "--compress", "zstd"], "--compress is for checkpoint archives"),
        (["x.tar", "--format", "docker"], "docker"),
    ],
)
def test_an_export_that_cannot_be_meant_is_refused(relive, tmp_path, arguments, words):
    relive("import", str(FIRST))
    said = relive("export", "counter", *arguments)
    assert said.status == 2 and words in said.err
    assert not list(tmp_path.glob("x*"))
