"""What an engine must be given back of a container is kept once, and files that the container cannot see are named."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from relive.checkpoint.archive_members import store_members
from relive.checkpoint.target import Contained
from relive.model.commit import ContainerFacts, EntryKind, FileEntry, Layer, LayerKind
from relive.store import Store

FACTS = ContainerFacts(engine="podman", id="c", image="i", runtime="runc", created="")


def entry(path: str, kind: EntryKind = EntryKind.DIRECTORY, *, opaque: bool = False) -> FileEntry:
    return FileEntry(path=path, kind=kind, opaque=opaque)


def test_whiteouts_and_what_an_opaque_directory_hides_are_deleted(tmp_path: Path) -> None:
    """GIVEN an image in two layers, WHEN a directory was replaced, THEN each of its old files that is not there anew is named."""
    for path in ("upper/etc/a", "lower/etc/a", "lower/etc/b/c", "lower/etc/kept/old", "lower/usr/x"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    entries = [
        entry("etc", opaque=True),
        entry("etc/kept"),
        entry("gone", EntryKind.WHITEOUT),
        entry("etc/a", EntryKind.FILE),
    ]
    contained = Contained(FACTS, "/", [], {"config.dump": b"{}"}, (tmp_path / "upper", tmp_path / "lower"))
    with contextlib.closing(Store(tmp_path / "store")) as store:
        store.make_ready()
        staging = store.stage()
        root = Layer(point="/", kind=LayerKind.OVERLAY, entries=entries)
        layer = store_members(store, staging.files, contained, [root])
        found = {one.path: store.files.content(one) for one in layer.entries}
        assert json.loads(found["deleted.files"]) == ["/etc/b", "/etc/kept/old", "/gone"]
        assert found["config.dump"] == b"{}"
        assert store_members(store, staging.files, contained, [root]) == layer
        staging.discard()
