"""The audit log: what is kept, how it is paged, what is noticed."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import AuditBroken
from relive.server import audit as audit_module
from relive.server.audit import Audit


@pytest.fixture
def server(tmp_path):
    return tmp_path / "server"


@pytest.fixture
def audit(server):
    return Audit(server)


def write(audit, count, **given):
    return [
        audit.record(
            **{"who": "ci", "address": "127.0.0.1", "what": f"POST /{n}", "outcome": "done", **given}
        )
        for n in range(count)
    ]


def files(server) -> list[Path]:
    return sorted((server / "audit").iterdir())


def test_an_entry_is_a_line_that_says_who_did_what(audit, server):
    """To this and no more a stranger who reads the file may hold."""
    audit.record(
        who="ci (0123)",
        address="127.0.0.1",
        what="POST /commits",
        outcome="done",
        target="pay",
        status=200,
        task="t-1",
        is_durable=True,
    )
    (line,) = files(server)[0].read_text().splitlines()
    entry = json.loads(line)
    assert entry.pop("time_ns") > 0
    assert len(entry.pop("hash")) == 64
    assert entry == {
        "number": 1,
        "who": "ci (0123)",
        "address": "127.0.0.1",
        "what": "POST /commits",
        "target": "pay",
        "outcome": "done",
        "status": 200,
        "task": "t-1",
        "unwritten": 0,
        "previous": "0" * 64,
    }
    assert stat.S_IMODE(files(server)[0].stat().st_mode) == 0o600
    assert stat.S_IMODE((server / "audit").stat().st_mode) == 0o700


def test_secrets_do_not_come_in(audit, server):
    token = "rlv_" + "a" * 16 + "_" + "b" * 64
    entry = audit.record(
        who="ci",
        address="::1",
        what=f"GET /x/{token}?password=hunter2&signature=abcdef",
        target="Authorization=hunter3",
        outcome="done",
    )
    text = files(server)[0].read_text()
    assert all(secret not in text for secret in (token, "b" * 64, "hunter2", "hunter3", "abcdef"))
    assert entry.what.startswith("GET /x/<secret>")


def test_no_text_makes_a_second_line(audit, server):
    audit.record(who="a\nb\u2028", address="\x00", what="GET /\r\n{}" + "x" * 9000, outcome="done")
    (entry,) = audit.page().entries
    assert files(server)[0].read_bytes().count(b"\n") == 1
    assert len(entry.what) == 500
    audit.verify()


def test_the_newest_come_first_and_pages_stay_right_while_entries_arrive(server):
    audit = Audit(server, full=2000)  # so that a page is in several files
    write(audit, 25)
    assert len(files(server)) > 2
    first = audit.page(limit=10)
    assert [entry.number for entry in first.entries] == list(range(25, 15, -1))
    write(audit, 5)
    second = audit.page(after=first.next, limit=10)
    third = audit.page(after=second.next, limit=10)
    assert [entry.number for entry in (*second.entries, *third.entries)] == list(range(15, 0, -1))
    assert third.next is None


@pytest.mark.parametrize("limit", [1, 5])
def test_a_page_that_holds_just_all_is_the_last(audit, limit):
    write(audit, limit)
    page = audit.page(limit=limit)
    assert len(page.entries) == limit
    assert page.next is None


def test_lines_longer_than_a_block_are_read(audit, monkeypatch):
    write(audit, 7)
    for block in (1, 7, 100, 450):
        monkeypatch.setattr(audit_module, "_BLOCK", block)
        assert [entry.number for entry in audit.page().entries] == [7, 6, 5, 4, 3, 2, 1]


def test_many_write_at_once_and_none_is_lost(server):
    logs = [Audit(server, full=5000) for _ in range(4)]  # as four processes would
    threads = [threading.Thread(target=write, args=(one, 25)) for one in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sound = logs[0].verify()
    assert (sound.entries, sound.first, sound.last) == (100, 1, 100)


def test_an_empty_log_is_sound(audit):
    sound = audit.verify()
    assert (sound.entries, sound.last) == (0, 0)
    assert audit.page().entries == []


def test_the_oldest_files_go_and_the_rest_is_sound(server, monkeypatch):
    monkeypatch.setattr(audit_module, "KEPT", 3)
    audit = Audit(server, full=1000)
    write(audit, 30)
    assert len(files(server)) == 3
    sound = audit.verify()
    assert sound.last == 30
    assert sound.first > 20
    assert sound.entries == sound.last - sound.first + 1


def tampered(server, change):
    """The lines of the second file, changed."""
    path = files(server)[1]
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [lines[0].replace(b"POST", b"GETT"), *lines[1:]], "was changed"),
        (lambda lines: [lines[0], *lines[2:]], "does not follow"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "does not follow"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "does not follow"),
        (lambda lines: lines[:-1], "does not follow"),
        (lambda _lines: [], "does not follow"),
        (lambda lines: [b"{}\n", *lines], "no entry"),
        (lambda lines: [b"\xff\n", *lines], "no entry"),
        (lambda lines: [lines[0][:-1], *lines[1:]], "no entry"),
    ],
)
def test_what_was_changed_is_noticed(server, change, words):
    audit = Audit(server, full=1200)
    write(audit, 12)
    audit.verify()
    tampered(server, change)
    with pytest.raises(AuditBroken, match=words):
        audit.verify()


def test_a_first_file_that_is_missing_its_beginning_is_noticed(server):
    audit = Audit(server)
    write(audit, 3)
    path = files(server)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(AuditBroken, match="is missing"):
        audit.verify()


def test_a_hash_made_without_the_key_is_noticed(server):
    """Somebody who knows the format and not the key writes a whole log of their own."""
    audit = Audit(server)
    write(audit, 3)
    other = Audit(server.parent / "other")
    write(other, 3, who="innocent")
    files(server)[0].write_bytes(files(server.parent / "other")[0].read_bytes())
    with pytest.raises(AuditBroken, match="entry 1 was changed"):
        audit.verify()


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_no_byte_can_be_changed_unnoticed(tmp_path_factory, position, by):
    server = tmp_path_factory.getbasetemp() / "one" / "server"
    audit = Audit(server)
    path = server / "audit" / "000000000001.jsonl"
    if not path.exists():
        write(audit, 3)
    sound = path.read_bytes()
    at = position % (len(sound) - 1)  # without the last newline: that is a line being written
    try:
        path.write_bytes(sound[:at] + bytes([sound[at] ^ by]) + sound[at + 1 :])
        with pytest.raises(AuditBroken):
            audit.verify()
    finally:
        path.write_bytes(sound)


@pytest.mark.parametrize("torn", [b'{"number":4,', b"{", b"x" * 70_000])
def test_a_line_whose_writer_died_is_taken_out_by_the_next(server, torn):
    write(Audit(server), 3)
    with files(server)[0].open("ab") as file:
        file.write(torn)
    audit = Audit(server)
    assert audit.verify().last == 3
    assert [entry.number for entry in audit.page().entries] == [3, 2, 1]
    write(audit, 1)
    assert audit.verify().entries == 4


def test_a_file_whose_writer_died_at_its_first_line_goes(server):
    audit = Audit(server, full=1000)
    write(audit, 3)
    number = audit.verify().last + 1
    (server / "audit" / f"{number:012}.jsonl").write_bytes(b'{"num')
    write(audit, 2)
    assert audit.verify().last == 5


def test_an_entry_that_acts_is_on_the_disk_on_return(audit, monkeypatch):
    synced = []
    monkeypatch.setattr(
        audit_module.os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    write(audit, 1)
    in_log = [name for name in synced if name.endswith(".jsonl")]
    assert in_log == []
    write(audit, 1, is_durable=True)
    assert [Path(name).name for name in synced if name.endswith(".jsonl")] == ["000000000001.jsonl"]
