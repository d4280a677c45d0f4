"""The commands that look after a store: what they say and how they end."""

from __future__ import annotations

import json
import shutil

import pytest

from store.builders import OLD, SECOND, commit

from .conftest import NOW_NS
from .test_listing import cells


@pytest.fixture
def three(store):
    """Commits of the last minutes, oldest first."""
    return [
        commit(
            store,
            capture=f"{n}",
            wall_ns=NOW_NS - (300 - 10 * n) * SECOND,
            files={"f": b"%d" % n},
            version=OLD,
        ).id
        for n in range(3)
    ]


def test_verify_says_that_all_is_well(relive, three):
    said = relive("verify")
    assert str(said) == "! Checked 3 commits, 3 packs, 3 files: all is well.\n= 0"
    assert "all is well" in relive("verify", "--data", three[0]).err


def test_verify_names_what_is_wrong_and_ends_with_7(relive, store, three):
    name = store.manifest(three[1]).layers[0].entries[-1].object
    assert name is not None
    store.internals.objects.path(name).unlink()
    said = relive("verify")
    assert said.status == 7
    assert [cells(line) for line in said.out.splitlines()] == [
        ["what", "name", "problem", "commits"],
        [
            "object",
            name[:12],
            f"object {name[:12]} is not in the store: it was deleted or never arrived (object-missing)",
            three[1][:10],
        ],
    ]
    assert said.err.splitlines() == [
        "Checked 3 commits, 3 packs, 3 files: 1 problems, 1 commits spoiled.",
        "Hint: relive repair --from STORE fetches what is damaged or missing from another store that has it",
    ]
    value = json.loads(relive("verify", "--json").out)
    assert value["spoiled"] == [three[1]]
    assert value["problems"][0]["name"] == name
    assert relive("verify", three[0]).status == 0


def test_retain_lists_first_and_drops_then(relive, store, three):
    said = relive(
        "retain", "--keep", "1", "--minutes", "0", "--hours", "0", "--dry-run", "--days", "0", "--months=0"
    )
    assert (said.status, said.err) == (0, "Would drop 1 of 3 commits.\n")
    assert [cells(line)[0] for line in said.out.splitlines()[1:]] == [three[1][:10]]
    assert len(store.log()) == 3
    value = json.loads(relive("retain", "pay", "--keep", "1", "--json").out)
    assert [one["id"] for one in value["dropped"]] == [
        three[1]
    ]  # all are of one minute, and the first is that of its start
    assert (value["kept"], [line.id for line in store.log()]) == (2, [three[2], three[0]])


def test_retain_follows_the_configuration(relive, store, three, monkeypatch):
    monkeypatch.setenv("RELIVE_KEEP", "1")
    for name in ("MINUTES", "HOURS", "DAYS", "MONTHS"):
        monkeypatch.setenv(f"RELIVE_KEEP_{name}", "0")
    value = json.loads(relive("retain", "--json").out)
    assert [one["id"] for one in value["dropped"]] == [three[1]]
    assert str(relive("retain")) == "! Nothing is to be dropped.\n! Dropped 0 of 2 commits.\n= 0"
    assert relive("retain", "--keep", "0").status == 2


def test_gc_says_what_would_go_and_what_went(relive, store, home, three):
    assert str(relive("gc")) == "! Freed 0 B; 0 B condemned.\n= 0"
    (store.internals.directory / "manifests" / f"{three[0]}.json").unlink()
    store._index.remove(three[0])
    foreseen = relive("gc", "--dry-run")
    assert {tuple(cells(line)[:2]) for line in foreseen.out.splitlines()[1:]} == {
        ("would be condemned", kind) for kind in ("object", "pack", "placement")
    }
    assert relive("gc").status == 0
    assert [one["kind"] for one in json.loads(relive("gc", "--json").out)["waiting"]] == [
        "object",
        "pack",
        "placement",
    ]
    would = json.loads(relive("gc", "--grace", "0", "--dry-run", "--json").out)
    did = json.loads(relive("gc", "--grace", "0", "--json").out)
    assert would["deleted"] == did["deleted"]
    assert did["freed"] == sum(one["bytes"] for one in did["deleted"]) > 0
    assert relive("verify", "--data").status == 0
    assert relive("gc", "--grace=-1").status == 2


def test_repair_fetches_from_a_copy(relive, store, home, three, tmp_path):
    shutil.copytree(home / "store", tmp_path / "copy")
    name = store.manifest(three[1]).layers[0].entries[-1].object
    assert name is not None
    store.internals.objects.path(name).unlink()
    said = relive("repair", "--from", str(tmp_path / "copy"), three[0])
    assert str(said) == "! Fetched 0 things, 0 B. All is well.\n= 0"
    said = relive("repair", "--from", (tmp_path / "copy").as_uri())
    assert (said.status, said.err) == (0, "Fetched 1 things, 1 B. All is well.\n")
    assert cells(said.out.splitlines()[1]) == ["fetched", "object", name[:12], "1 B"]
    store.internals.objects.path(name).unlink()
    (tmp_path / "copy" / "objects" / name[:2] / name[2:]).unlink()
    said = relive("repair", "--from", str(tmp_path / "copy"))
    assert said.status == 7
    assert three[1][:10] in said.out
    assert relive("repair", "--from", "ftp://bucket").status == 2
    assert relive("repair").status == 7  # of what is derived nothing is wrong, and the rest is left


def test_store_stats_tells_what_takes_the_room(relive, store, three, tmp_path):
    said = relive("store", "stats", "--commits", "--html", str(tmp_path / "page.html"))
    assert said.status == 0
    assert said.err == f"Wrote {tmp_path / 'page.html'}.\n"
    assert said.out.startswith("3 commits bring back 12.1 KiB and take ")
    assert "files" in said.out
    assert all(commit_id[:10] in said.out for commit_id in three)
    assert "<svg" in (tmp_path / "page.html").read_text()
    value = json.loads(relive("store", "stats", "--json").out)
    assert value["stored"] == sum(value["dominance"].values())
    assert [one["id"] for one in value["commits"]] == three
    assert relive("store", "stats", "--html", str(tmp_path / "no" / "page.html")).status == 2
