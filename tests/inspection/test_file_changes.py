from relive.inspection.file_changes import FileChange, file_differences, text_difference
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind

NAMES = {b"one\ntwo\n": "1" * 64, b"one\n2\n": "2" * 64, b"\0\1": "3" * 64}
CONTENTS = {name: data for data, name in NAMES.items()}


def layer(*entries: FileEntry) -> list[Layer]:
    return [Layer(point="/srv", kind=LayerKind.OVERLAY, entries=list(entries))]


def file(path: str, data: bytes, mode: int = 0o644) -> FileEntry:
    return FileEntry(path=path, kind=EntryKind.FILE, mode=mode, size=len(data), object=NAMES[data])


def content(entry: FileEntry) -> bytes:
    assert entry.object is not None
    return CONTENTS[entry.object]


def test_what_became_of_each_path_is_told():
    before = layer(
        file("a", b"one\ntwo\n"), file("b", b"one\n2\n"), file("c", b"\0\1"), file("same", b"one\n2\n")
    )
    gone = FileEntry(path="b", kind=EntryKind.WHITEOUT)
    after = layer(
        file("a", b"one\n2\n"), gone, file("c", b"\0\1", 0o600), file("d", b"\0\1"), file("same", b"one\n2\n")
    )
    found = {one.path: one for one in file_differences(before, after, content)}
    assert {path: one.change for path, one in found.items()} == {
        "/srv/a": FileChange.CONTENT,
        "/srv/b": FileChange.REMOVED,
        "/srv/c": FileChange.ATTRIBUTES,
        "/srv/d": FileChange.ADDED,
    }
    assert found["/srv/a"].lines == ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    assert (found["/srv/d"].before, found["/srv/d"].after) == (None, 2)


def test_what_is_no_text_is_not_compared_line_by_line():
    assert text_difference(b"\0", b"\1") == ([], 0)
    assert text_difference(b"\xff", b"a") == ([], 0)


def test_a_long_difference_is_cut_and_says_by_how_much():
    lines, cut = text_difference(b"", b"".join(b"%d\n" % number for number in range(1000)))
    assert len(lines) == 200 and len(lines) + cut == 1001
