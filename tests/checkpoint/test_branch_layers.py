"""The files of a branch's commit: what its parent has, and what the branch has changed, as overlayfs shows them."""

from __future__ import annotations

from pathlib import Path

from relive.checkpoint.branch_layers import fold_layers
from relive.checkpoint.file_layers import LayerScanner, LayerSource, ScannedEntry
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind

FILE, DIRECTORY, WHITEOUT = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.WHITEOUT


def entry(path: str, kind: EntryKind = FILE, *, opaque: bool = False, uid: int = 0) -> FileEntry:
    return FileEntry(path=path, kind=kind, opaque=opaque, uid=uid)


def folded(
    before: list[FileEntry],
    changes: list[FileEntry],
    *,
    kind: LayerKind = LayerKind.OVERLAY,
    point: str = "/",
    left_out: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
) -> tuple[list[FileEntry], list[str]]:
    scanned: list[ScannedEntry] = [(one, None) for one in changes]
    source = LayerSource(point, kind, LayerScanner(Path("/nowhere")))
    layer = Layer(point=point, kind=kind, entries=before, left_out=list(left_out))
    ((found, entries),) = fold_layers([layer], [(source, scanned)], given)
    assert (found.point, found.kind) == (point, kind)
    return [one for one, _ in entries], found.left_out


def test_what_the_branch_has_not_touched_is_the_parent_s() -> None:
    before = [entry("srv", DIRECTORY), entry("srv/a"), entry("srv/b")]
    found, _ = folded(before, [entry("srv", DIRECTORY), entry("srv/b", uid=7), entry("srv/c")])
    assert found == [entry("srv", DIRECTORY), entry("srv/a"), entry("srv/b", uid=7), entry("srv/c")]


def test_what_it_deleted_hides_all_below() -> None:
    before = [entry("srv", DIRECTORY), entry("srv/a"), entry("srv-2")]
    assert folded(before, [entry("srv", WHITEOUT)])[0] == [entry("srv", WHITEOUT), entry("srv-2")]


def test_a_directory_made_anew_hides_what_was_there() -> None:
    before = [entry("srv", DIRECTORY), entry("srv/a")]
    changes = [entry("srv", DIRECTORY, opaque=True), entry("srv/b")]
    assert folded(before, changes)[0] == changes


def test_a_directory_goes_on_hiding_what_it_hid_in_the_parent() -> None:
    for below in (entry("srv", DIRECTORY, opaque=True), entry("srv", WHITEOUT)):
        found, _ = folded([below], [entry("srv", DIRECTORY), entry("srv/b")])
        assert found == [entry("srv", DIRECTORY, opaque=True), entry("srv/b")]


def test_in_memory_the_branch_has_all_and_the_rest_is_gone() -> None:
    before = [entry("app", DIRECTORY), entry("app/pid"), entry("old", DIRECTORY), entry("old/pid")]
    present = [entry("app", DIRECTORY), entry("lock", DIRECTORY), entry("log", DIRECTORY), entry("log/x")]
    found, _ = folded(
        before, present, kind=LayerKind.TMPFS, point="/run", given=("/run/lock", "/run/log", "/run/app")
    )
    assert found == [
        entry("app", DIRECTORY),
        entry("app/pid", WHITEOUT),
        entry("log", DIRECTORY),
        entry("log/x"),
        entry("old", WHITEOUT),
    ]


def test_what_the_parent_lacks_it_lacks_unless_the_branch_has_it() -> None:
    lines = ("srv/a\ttoo large", "srv/b\ttoo large", "opt/c\ttoo large")
    _, left_out = folded([], [entry("opt", WHITEOUT), entry("srv/b")], left_out=lines)
    assert left_out == ["srv/a\ttoo large"]


def test_a_layer_that_only_one_of_them_has_stays_as_it_is() -> None:
    source = LayerSource("/data", LayerKind.OVERLAY, LayerScanner(Path("/nowhere")))
    layer = Layer(point="/srv", kind=LayerKind.OVERLAY, entries=[entry("a")])
    found = fold_layers([layer], [(source, [(entry("b"), None)])])
    assert [(one.point, entries) for one, entries in found] == [
        ("/srv", [(entry("a"), None)]),
        ("/data", [(entry("b"), None)]),
    ]
