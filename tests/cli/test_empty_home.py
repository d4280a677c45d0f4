"""Every command where there is nothing yet: an answer or one clear error, never a stack of Python's."""

from __future__ import annotations

import json

import pytest

from relive import errors

SNAPSHOTS = {
    ("log",): "! There are no commits.\n= 0",
    ("log", "pay", "-n", "3"): (
        "! Error: nothing called 'pay' is known to Relive (target-unknown)\n"
        "! Cause: it has no commits and no incidents, and nothing was run or is watched under that name\n"
        "! Remedy: `relive ps` lists what runs; `relive log` what was committed\n"
        "= 3"
    ),
    ("ps",): "! Nothing runs.\n= 0",
    ("ps", "--all"): "! Nothing runs.\n= 0",
    ("incidents",): "! There are no incidents.\n= 0",
    ("incidents", "pay"): (
        "! Error: nothing called 'pay' is known to Relive (target-unknown)\n"
        "! Cause: it has no commits and no incidents, and nothing was run or is watched under that name\n"
        "! Remedy: `relive ps` lists what runs; `relive log` what was committed\n"
        "= 3"
    ),
    ("tag",): "! There are no tags.\n= 0",
    ("verify",): "! Checked 0 commits, 0 packs, 0 files: all is well.\n= 0",
    ("retain",): "! Nothing is to be dropped.\n! Dropped 0 of 0 commits.\n= 0",
    ("gc",): "! Freed 0 B; 0 B condemned.\n= 0",
    ("verify", "pay"): (
        "! Error: 'pay' names no commit (ref-unknown)\n"
        "! Remedy: `relive log` lists commits, `relive tag` the tags\n"
        "= 3"
    ),
    ("key", "rotate"): (
        "! Error: there is no store key to change (key-missing)\n! Remedy: `relive key new` makes one\n= 7"
    ),
    ("repair", "--from", "nowhere"): (
        "! Error: there is no store in 'nowhere' (usage)\n"
        "! Remedy: name a store's directory, the RELIVE_HOME it lies in, or a remote\n"
        "= 2"
    ),
    ("stop", "--all"): "nothing to stop\n= 0",
    ("show", "pay"): (
        "! Error: 'pay' names no commit (ref-unknown)\n"
        "! Remedy: `relive log` lists commits, `relive tag` the tags\n"
        "= 3"
    ),
    ("show", "pay@{soon}"): (
        "! Error: 'pay@{soon}' names no commit (ref-unknown)\n"
        "! Cause: 'soon' is neither a count nor a time\n"
        "! Remedy: write NAME@{3}, NAME@{2 minutes ago} or NAME@{2026-11-20 03:14:07}\n"
        "= 3"
    ),
    ("show", "incident/4"): (
        "! Error: there is no incident 4 (incident-unknown)\n! Remedy: `relive incidents` lists them\n= 3"
    ),
    ("replay", "4"): (
        "! Error: there is no incident 4 (incident-unknown)\n! Remedy: `relive incidents` lists them\n= 3"
    ),
    ("replay", "pay"): (
        "! Error: which request? (usage)\n"
        "! Remedy: name an incident, or write `relive replay REF --request N`\n"
        "= 2"
    ),
    ("stop", "pay"): (
        "! Error: 'pay' is no branch, no capsule and not watched (branch-unknown)\n"
        "! Remedy: `relive ps --all` lists all of them\n= 3"
    ),
    (
        "logs",
        "pay",
    ): "! Error: 'pay' names no branch (branch-unknown)\n! Remedy: `relive ps` lists branches\n= 3",
    ("exec", "pay", "--", "ls"): (
        "! Error: 'pay' names no branch (branch-unknown)\n! Remedy: `relive ps` lists branches\n= 3"
    ),
    ("commit", "pay"): (
        "! Error: no running capsule is called 'pay' (target-unknown)\n"
        "! Remedy: `relive ps` lists capsules; any process can be named as pid:NUMBER\n"
        "= 3"
    ),
    ("commit", "pid:x"): (
        "! Error: 'pid:x' is no target (usage)\n! Remedy: write pid:1234, podman:NAME, or a capsule's name\n= 2"
    ),
    ("tag", "best"): "! Error: which commit? (usage)\n! Remedy: write `relive tag best REF`\n= 2",
    ("tag", "-d", "best"): (
        "! Error: 'best' names no commit (ref-unknown)\n"
        "! Remedy: `relive log` lists commits, `relive tag` the tags\n"
        "= 3"
    ),
    ("run", "--upstream", "2", "--", "true"): (
        "! Error: --upstream needs --listen (usage)\n! Remedy: say at which ADDR:PORT clients connect\n= 2"
    ),
    ("run", "--no-record-egress", "--egress", "beside", "--", "true"): (
        "! Error: --egress beside and --no-record-egress exclude each other (usage)\n"
        "! Remedy: give one of them, or neither\n"
        "= 2"
    ),
    ("run", "--every", "often", "--", "true"): (
        "! Error: --every cannot be 'often' (usage)\n"
        "! Remedy: write a time such as 30s or 500ms, or change, deploy, request, start, never\n"
        "= 2"
    ),
    ("run", "--name", "a/b", "--", "true"): (
        "! Error: 'a/b' cannot be a capsule's name (usage)\n"
        "! Remedy: use letters, digits, dot, dash and underscore\n"
        "= 2"
    ),
}


@pytest.mark.parametrize("arguments", SNAPSHOTS, ids=" ".join)
def test_what_it_says(relive, arguments):
    assert str(relive(*arguments)) == SNAPSHOTS[arguments]


LISTS = [("log",), ("ps",), ("incidents",), ("tag",)]


@pytest.mark.parametrize("arguments", LISTS, ids=" ".join)
def test_an_empty_list_in_json_is_an_empty_array_and_nothing_else(relive, arguments):
    said = relive(*arguments, "--json")
    assert (said.status, json.loads(said.out), said.err) == (0, [], "")


ERRORS = [
    arguments
    for arguments, text in SNAPSHOTS.items()
    if "Error:" in text and arguments[0] not in ("exec", "run")
]


@pytest.mark.parametrize("arguments", ERRORS, ids=" ".join)
def test_an_error_in_json_has_the_one_shape_on_stdout(relive, arguments):
    said, text = relive(*arguments, "--json"), relive(*arguments)
    shape = json.loads(said.out)
    assert set(shape) == {"error"}
    assert set(shape["error"]) == {"code", "message", "cause", "remedy"}
    assert said.status == text.status
    assert f"({shape['error']['code']})" in text.err
    kind = next(
        kind for kind in vars(errors).values() if getattr(kind, "code", None) == shape["error"]["code"]
    )
    assert kind.exit_status == said.status


@pytest.mark.parametrize(
    "arguments",
    [("log", "-n", "0"), ("show",), ("nonsense",), ("replay", "1", "--times", "0"), ("log", "--oh")],
    ids=" ".join,
)
def test_a_command_line_that_cannot_be_read_ends_with_2_and_says_how_it_is_written(relive, arguments):
    said = relive(*arguments)
    assert said.status == 2
    assert said.out == ""
    assert "Usage: " in said.err


def test_a_wrong_setting_is_an_error_like_others(relive, monkeypatch):
    monkeypatch.setenv("RELIVE_KEEP", "none")
    said = relive("log")
    assert said.status == 2
    assert said.err.startswith("Error: the setting 'keep' cannot be 'none' (config-invalid)\n")


def test_a_store_of_another_version_is_an_error_like_others(relive, home):
    relive("log")
    (home / "store" / "format").write_text('{"version": 99}')
    said = relive("log")
    assert said.status == 7
    assert "(store-version-unknown)" in said.err


def test_an_option_of_the_service_is_not_relives(relive):
    said = relive("run", "--every", "often", "--", "service", "--json")
    assert said.err.startswith("Error:")


def test_a_command_line_that_cannot_be_read_is_json_too_when_asked_for(relive):
    said = relive("log", "-n", "0", "--json")
    assert set(json.loads(said.out)) == {"error"}
