"""Listing and showing what a home holds, as snapshots; a new one is to be read as a claim."""

from __future__ import annotations

import json
import os
import re

import pytest

from relive.cli.terminal import Terminal
from relive.incidents.incidents import Incidents
from relive.model.commit import (
    MANIFEST_VERSION,
    Connection,
    Cursor,
    EntryKind,
    FileEntry,
    Layer,
    LayerKind,
    OpenRequest,
    ProcessFacts,
)
from relive.model.incident import FailureKind, Sighting
from relive.store import manifests
from relive.store.objects import hash_bytes
from store.builders import SECOND, commit, make_manifest, take_layer

from .conftest import NOW_NS


@pytest.fixture
def two(store):
    """Two commits of one service, minutes and hours old."""
    old = commit(
        store, capture="1", wall_ns=NOW_NS - 3 * 3600 * SECOND, files={"f": b"x"}, pages=bytes(3 << 20)
    )
    new = commit(
        store, capture="2", wall_ns=NOW_NS - 90 * SECOND + 123_000_000, files={"f": b"x"}, sequence=7
    )
    return old, new


def cells(line: str) -> list[str]:
    """Of one line of a table, whose columns are at least two blanks apart."""
    return re.split(r"\s{2,}", line.strip())


def test_log_names_commits_whose_manifests_are_damaged(relive, store, two):
    old, new = two
    manifest = store.internals.directory / "manifests" / f"{new.id}.json"
    manifest.chmod(0o600)
    manifest.write_bytes(manifest.read_bytes().replace(b"pay", b"day", 1))
    what = f"the manifest of {new.id[:10]} is damaged (object-corrupt): its bytes do not match its id"
    said = relive("log")
    assert said.status == 0 and [line.split()[0] for line in said.out.splitlines()[1:]] == [
        new.id[:10],
        old.id[:10],
    ]
    assert said.out.splitlines()[1].endswith("(damaged)")
    assert f"Damaged: {what}" in said.err and "`relive repair --from STORE`" in said.err
    # Where the index is gone as well, nothing says what it was.
    for file in store.internals.directory.glob("index.sqlite*"):
        file.unlink()
    said = relive("log", "pay")
    assert said.status == 0 and [line.split()[0] for line in said.out.splitlines()[1:]] == [old.id[:10]]
    assert f"Not listed: {what}" in said.err
    listed, left_out = json.loads(relive("log", "--json").out)
    assert (listed["id"], listed["damaged"]) == (old.id, False)
    assert listed.keys() == left_out.keys() and listed["fault"] is None
    assert (left_out["id"], left_out["damaged"], left_out["name"]) == (new.id, True, None)
    assert left_out["fault"]["code"] == "object-corrupt" and "repair" in left_out["fault"]["remedy"]


def test_log_names_commits_of_a_newer_relive(relive, store, two):
    data = json.dumps({"version": MANIFEST_VERSION + 1, "target": "told otherwise"}).encode()
    name = hash_bytes(data)
    (store.internals.directory / "manifests" / f"{name}.json").write_bytes(data)
    said = relive("log")
    assert said.status == 0 and len(said.out.splitlines()) == 3
    assert (
        f"Not listed: the manifest of {name[:10]} cannot be read (object-corrupt): it has version" in said.err
    )
    assert "Remedy: use the Relive that wrote it" in said.err
    assert [one["id"] for one in json.loads(relive("log", "--json").out) if one["fault"]] == [name]


def test_what_an_older_relive_could_not_read_is_listed_by_a_newer_one(relive, store, two, monkeypatch):
    """The directory does not change between the two."""
    with monkeypatch.context() as older:
        older.setattr(manifests, "MANIFEST_VERSION", 1)  # what was just committed is newer
        for file in store.internals.directory.glob("index.sqlite*"):
            file.unlink()
        os.utime(store.internals.directory / "manifests", (1_000_000_000, 1_000_000_000))
        assert relive("log").err.count("Not listed") == 2
    assert len(relive("log").out.splitlines()) == 3


def test_log_shows_commits_newest_first_with_their_tags(relive, store, two):
    old, new = two
    store.tag("before-release", old.id)
    said = relive("log")
    assert (said.status, said.err) == (0, "")
    assert [cells(line) for line in said.out.splitlines()] == [
        ["commit", "target", "taken", "ago", "trigger", "pause", "durable", "size", "tags"],
        [new.id[:10], "pay", "2023-11-14 22:11:50.123", "90 s", "manual", "1.2 ms", "-", "4.0 KiB"],
        [
            old.id[:10],
            "pay",
            "2023-11-14 19:13:20.000",
            "3 h",
            "manual",
            "1.2 ms",
            "-",
            "3.0 MiB",
            "before-release",
        ],
    ]


def test_only_numbers_are_set_to_the_right(capsys):
    """Else the look of a table depends on the ids in it."""
    rows = [["1a2b", "2023-11-14 22:13:20", "x"], ["1c3d5e", "2023-11-14 22:13:20.000", "x"]]
    Terminal().table(rows, ["commit", "taken", "what"], rows, "")
    header, first, _ = capsys.readouterr().out.splitlines()
    assert header.startswith("commit  taken ")
    assert first.startswith("1a2b    2023")


def test_log_in_json_has_every_fact_in_plain_units(relive, store, two):
    old, new = two
    store.tag("best", old.id)
    first, second = json.loads(relive("log", "--json").out)
    assert (first["id"], second["id"]) == (new.id, old.id)
    assert first["taken_wall_ns"] == new.taken_wall_ns
    assert first["pause_us"] == 1234
    assert first["sequence"] == 7
    assert second["tags"] == ["best"]


def test_log_can_be_limited_to_a_target_and_a_number(relive, store, two):
    commit(store, name="other", capture="3")
    assert [line["name"] for line in json.loads(relive("log", "pay", "--json").out)] == ["pay", "pay"]
    assert len(json.loads(relive("log", "-n", "1", "--json").out)) == 1


CURSOR = re.compile(r"There are more: --after (\S+)\n")


def test_log_goes_on_where_a_page_ended(relive, store, two):
    old, new = two
    said = relive("log", "-n", "1", "--json")
    assert [line["id"] for line in json.loads(said.out)] == [new.id]
    (after,) = CURSOR.fullmatch(said.err).groups()
    commit(store, name="other", capture="3", wall_ns=NOW_NS)  # newer, so it moves the list
    said = relive("log", "-n", "1", "--json", "--after", after)
    assert ([line["id"] for line in json.loads(said.out)], said.err) == ([old.id], "")


def test_a_cursor_that_is_none_is_refused(relive, store, two):
    said = relive("log", "--after", "x")
    assert (said.status, said.out) == (2, "")
    assert "Remedy: give the one that came with the page before" in said.err


def test_log_can_be_searched_by_name_and_command_line(relive, store, two):
    other = commit(store, name="other", capture="3")
    assert [line["id"] for line in json.loads(relive("log", "--search", "OTHER --now", "--json").out)] == [
        other.id
    ]
    assert relive("log", "--search", "nothing").err == "There are no commits.\n"


def test_tags_are_listed_set_moved_and_removed(relive, two):
    old, new = two
    assert str(relive("tag", "best", old.id[:8])) == f"{old.id}\n= 0"
    assert [cells(line) for line in relive("tag").out.splitlines()] == [
        ["tag", "commit"],
        ["best", old.id[:10]],
    ]
    said = relive("tag", "best", new.id)
    assert (said.status, said.out) == (2, "")
    assert said.err == (
        f"Error: the tag 'best' exists (usage)\nCause: it names {old.id[:10]}\nRemedy: use --force to move it\n"
    )
    assert str(relive("tag", "--force", "best", "pay")) == f"{new.id}\n= 0"
    assert str(relive("tag", "--delete", "best")) == "deleted best\n= 0"
    assert json.loads(relive("tag", "--json").out) == []


def rich_manifest(store):
    staging = store.stage()
    (staging.files / "0").write_bytes(b"limit=5\n")
    layer = take_layer(store, staging.files, {"etc/pay.conf": b"limit=5\n"})
    staging.discard()
    deleted = FileEntry(path="tmp/old", kind=EntryKind.WHITEOUT)
    manifest = make_manifest(
        wall_ns=NOW_NS,
        layers=[layer.model_copy(update={"entries": [*layer.entries, deleted]})],
        parents=["f" * 64],
    )
    return manifest.model_copy(
        update={
            "cursor": Cursor(sequence=41, open_requests=[OpenRequest(request=9, local_port=5000)]),
            "listening": [("0.0.0.0", 8000)],
            "connections": [
                Connection(local=("10.0.0.1", 8000), peer=("10.0.0.9", 5000), inward=True),
                Connection(local=("10.0.0.1", 4444), peer=("10.0.0.7", 5432), inward=False),
            ],
            "target": manifest.target.model_copy(
                update={
                    "processes": [
                        ProcessFacts(pid=2, parent=1, command="pay", threads=1, uid=0),
                        ProcessFacts(pid=9, parent=2, command="worker", threads=4, uid=33),
                    ]
                }
            ),
            "stopped_by": 11,
            "stopped_pid": 9,
        }
    )


def test_show_tells_what_a_commit_holds(relive, store):
    one = store.add(rich_manifest(store), new_bytes=0)
    shown = f"""\
commit {one.id}
Target:   pay (pay --now)
Taken:    2023-11-14 22:13:20.000 on host, trigger manual
Times:    pause 1.2 ms, durable after -
Size:     8 B, of which 0 B were new
Parent:   {"f" * 64}
Recorded: up to event 41; requests being served: 9
Stopped:  signal 11 withheld from process 9

Processes:
       2  pay  (parent 1, 1 thread, uid 0)
       9  worker  (parent 2, 4 threads, uid 33)

Sockets:
  listening on 0.0.0.0:8000
  10.0.0.1:8000 <- 10.0.0.9:5000
  10.0.0.1:4444 -> 10.0.0.7:5432

Files below /: 2
  etc/pay.conf  8 B
  tmp/old  deleted
= 0"""
    assert str(relive("show", one.id[:8])) == shown


def test_show_in_json_is_the_manifest_and_what_the_index_knows(relive, store):
    one = store.add(rich_manifest(store))
    shown = json.loads(relive("show", one.id, "--json").out)
    assert shown["id"] == one.id
    assert shown["cursor"]["open_requests"] == [{"request": 9, "local_port": 5000}]
    assert {"durable_us", "new_bytes"} <= set(shown)


def test_a_long_list_of_files_is_cut_and_says_so(relive, store):
    files = {f"f{number:03}": b"" for number in range(25)}
    one = commit(store, files=files)
    said = relive("show", one.id)
    assert "Files below /: 25" in said.out
    assert "... and 5 more (--json lists all)" in said.out


@pytest.fixture
def incident(home, store):
    sighting = Sighting(
        kind=FailureKind.ANSWER,
        fingerprint="answer 500 POST /pay",
        summary="request 7 (POST /pay) was answered with status 500",
        seen_wall_ns=NOW_NS - 5 * SECOND,
        request=7,
        open_requests=[7, 8],
    )
    before = commit(store).id
    tail = [
        "Traceback (most recent call last):",
        '  File "pay.py", line 3, in pay',
        "    fail()",
        "KeyError: [1]",
    ]
    return Incidents(home / "incidents").add(
        "pay", "L1", sighting, before=before, at=None, log_end=100, log_tail=tail
    )


def test_incidents_are_listed(relive, incident):
    said = relive("incidents")
    assert (said.status, said.err) == (0, "")
    assert [cells(line) for line in said.out.splitlines()] == [
        ["incident", "service", "first seen", "last", "times", "before", "at", "exception", "what"],
        [
            *("1", "pay", "2023-11-14 22:13:15.000", "5 s", "1", incident.before[:10], "-", "KeyError: [1]"),
            "request 7 (POST /pay) was answered with status 500",
        ],
    ]


def test_incidents_go_on_where_a_page_ended_and_can_be_searched(relive, home, incident):
    for summary in ("request 8 (GET /mail) hangs", "request 9 (GET /) was answered with status 502"):
        sighting = Sighting(kind=FailureKind.HANG, fingerprint=summary, summary=summary, seen_wall_ns=NOW_NS)
        Incidents(home / "incidents").add("pay", "L1", sighting, before=None, at=None, log_end=0, log_tail=[])
    said = relive("incidents", "-n", "2", "--json")
    assert [one["number"] for one in json.loads(said.out)] == [3, 2]
    (after,) = CURSOR.fullmatch(said.err).groups()
    said = relive("incidents", "--json", "--after", after)
    assert ([one["number"] for one in json.loads(said.out)], said.err) == ([1], "")
    for asked, numbers in (("Answered", [3, 1]), ("keyerror", [1]), ("/mail hangs", [2]), ("nothing", [])):
        assert [
            one["number"] for one in json.loads(relive("incidents", "-s", asked, "--json").out)
        ] == numbers


@pytest.mark.parametrize("name", ["incident/1", "1"])
def test_an_incident_is_shown_with_its_stack_and_what_to_do(relive, incident, name):
    shown = f"""\
incident 1 of pay: request 7 (POST /pay) was answered with status 500
Seen:     2023-11-14 22:13:15.000, 1 time, kind answer
Before:   {incident.before}
At:       no commit
Open:     requests 7, 8

Stack:
  pay.py:3 in pay
  KeyError: [1]

Next:
  no replay: the request is not in the recording any more, or was not kept whole
= 0"""
    assert str(relive("show", name)) == shown


def test_an_incident_in_json_is_what_its_file_holds_and_what_else_is_known(relive, incident):
    own = incident.model_dump(mode="json")
    shown = json.loads(relive("show", "incident/1", "--json").out)
    assert {name: shown[name] for name in own} == own
    assert shown["stack"]["exception"] == "KeyError: [1]"
    assert (shown["package"], shown["timeline"]) == (None, None)
    del own["log_tail"]  # too long for a list
    assert json.loads(relive("incidents", "--json").out) == [{**own, "exception": "KeyError: [1]"}]


# -- pipes -------------------------------------------------------------------------------------------------------------


def test_a_table_in_a_pipe_is_one_line_a_row_with_nothing_cut(relive, home, store):
    """Else `relive incidents | grep` loses what it looks for."""
    long = "the service said " + "a very long word " * 40 + "END"
    sighting = Sighting(kind=FailureKind.EXIT, fingerprint="x", summary=long, seen_wall_ns=NOW_NS)
    Incidents(home / "incidents").add("pay", "L1", sighting, before=None, at=None, log_end=0, log_tail=[])
    lines = relive("incidents").out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("END")


@pytest.mark.parametrize(
    "summary", ["[red]no markup[/red]", "[/]", "\\[", "a\\", "[bold", "€ 10 → 20", ":smile:"]
)
def test_what_was_said_is_shown_as_it_was_said(relive, home, summary):
    sighting = Sighting(kind=FailureKind.EXIT, fingerprint="x", summary=summary, seen_wall_ns=NOW_NS)
    Incidents(home / "incidents").add(
        "pay", "L1", sighting, before=None, at=None, log_end=0, log_tail=[summary]
    )
    assert relive("incidents").out.rstrip().endswith(summary)
    shown = relive("show", "1").out
    assert shown.splitlines()[0] == f"incident 1 of pay: {summary}"
    assert f"  {summary}\n" in shown


def test_a_file_name_that_is_no_utf_8_can_be_shown(relive, store):
    name = os.fsdecode(b"caf\xe9")
    layer = Layer(
        point="/", kind=LayerKind.OVERLAY, entries=[FileEntry(path=name, kind=EntryKind.LINK, link="x")]
    )
    one = store.add(make_manifest(layers=[layer]))
    said = relive("show", one.id)
    assert said.status == 0
    assert r"caf\xe9" in said.out
    assert r"caf\\xe9" in relive("show", one.id, "--json").out


@pytest.mark.parametrize("name", ["²", "٣", "1" * 20])
def test_a_number_that_is_none_names_no_commit(relive, name):
    said = relive("show", name)
    assert said.status == 3
