"""What an agent knew of changed files, the next one knows; and what nobody followed is never lost."""

from __future__ import annotations

from relive.watching.processes.journal import CHANGED, CREATED, TREE, JournalWriter, read_journal


def test_what_was_noted_is_read_again_whatever_bytes_a_name_has(tmp_path):
    path = tmp_path / "followed.jsonl"
    first = JournalWriter(path)
    assert first.last_alive_ns is None
    for name, how in (("/a", CREATED), ("/b\udcff", CHANGED), ("/c\nd", TREE)):
        first.note(name, how)
    first.note_gap("/mnt", "nobody followed")
    first.note_gap("/mnt", "nobody followed")
    first.close()
    second = JournalWriter(path)
    assert {name: how for name, (_, how) in second.known.paths.items()} == {
        "/a": CREATED,
        "/b\udcff": CHANGED,
        "/c\nd": TREE,
    }
    assert [text for _, text in second.known.gaps] == ["mnt\tnobody followed"]
    assert second.last_alive_ns is not None
    second.close()


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    path = tmp_path / "followed.jsonl"
    path.write_text('{"at": 1, "path": "/a", "how": "created"}\n{"at": 2, "pa')
    assert list(read_journal(path).paths) == ["/a"]
    assert read_journal(tmp_path / "none").paths == {}
