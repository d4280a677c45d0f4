"""Contents of files: kept page by page against the commit before, and given back as they were."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.model.commit import CommitId, EntryKind, FileEntry, Layer, LayerKind
from relive.store import Store
from relive.store.keyring import Keyring
from relive.store.pages import ingest
from relive.store.pages.contents import read_new

from .builders import OLD, commit, contents, make_manifest, stage, take_layer
from .test_store import pack_files

PAGE = 4096
MB = 1 << 20
NAMES = ["a", "b", "c"]
within = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def edited(data: bytes, edit: tuple[str, int, int]) -> bytes:
    """A file after one edit by a service."""
    kind, at, amount = edit
    changed = bytearray(data)
    at %= len(data) + 1
    match kind:
        case "write":
            changed[at : at + amount] = random.Random(at).randbytes(amount)
        case "append":
            changed += random.Random(amount).randbytes(amount)
        case "cut":
            del changed[at:]
        case "insert":
            changed[at:at] = b"i" * (amount % 50)
        case "zero":
            changed[at : at + amount] = bytes(amount)
    return bytes(changed)


edits = st.tuples(
    st.sampled_from(["write", "append", "cut", "insert", "zero"]),
    st.integers(0, 200_000),
    st.integers(0, 9000),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.sampled_from(NAMES), edits),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    min_size=1,
    max_size=12,
)


@within
@given(steps=steps, sealed=st.booleans())
def test_any_life_of_files_comes_back_from_each_commit(tmp_path_factory, steps, sealed):
    """Also after the process that knew their fingerprints was replaced, and through key commits."""
    home = tmp_path_factory.mktemp("contents")
    if sealed:
        Keyring(home / "keys").make_store_key()
    store = Store(home / "store")
    files: dict[str, bytes] = {"a": random.Random(1).randbytes(150_000), "b": b"", "c": b"text\n" * 3000}
    states: dict[CommitId, Mapping[str, bytes]] = {}
    parent: list[CommitId] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "KEY_EVERY", 3)
        for number, (what, name, how) in enumerate([("start", None, None), *steps]):
            files = dict(files)
            match what:
                case "edit" if name in files:
                    files[name] = edited(files[name], how)
                case "rename" if name in files:
                    files[how] = files.pop(name)
                case "remove":
                    files.pop(name, None)
                case "restart":
                    store.close()
                    store = Store(home / "store")
            parent = [commit(store, capture=f"{number}", files=files, parents=parent).id]
            states[parent[0]] = files
    for commit_id, state in states.items():
        assert contents(store, commit_id)[1] == state
    store.close()


@pytest.mark.parametrize("restarts", [False, True], ids=["known", "restarted"])
def test_a_large_file_of_which_little_changed_costs_little(store, home, restarts):
    data = bytearray(os.urandom(8 * MB))
    one = commit(store, capture="1", files={"db": bytes(data)})
    before = sum(pack_files(home).values())
    for page in (5, 700, 1999):
        data[page * PAGE + 8 : page * PAGE + 40] = os.urandom(32)
    if restarts:
        store.close()
        store = Store(home)
    two = commit(store, capture="2", files={"db": bytes(data)}, parents=[one.id])
    assert sum(pack_files(home).values()) - before < 10_000
    assert two.new_bytes < 15_000
    assert contents(store, two.id)[1] == {"db": bytes(data)}


def take_again(store: Store, names: Mapping[str, tuple[str, int]], parent: CommitId) -> CommitId:
    """A commit whose files are all as they were, as a scanner tells it: by their contents' names."""
    layer = store.manifest(parent).layers[0]
    assert {entry.path for entry in layer.entries} >= names.keys()
    with store.taking_in(parent):
        assert all(store.has_object(name) for name, _ in names.values())
        return store.add(make_manifest(capture="again", parents=[parent], layers=[layer])).id


def test_what_did_not_change_is_not_read(store, monkeypatch):
    """Neither the file nor its pages; the parent's packs may be as large as they like."""
    files = {"large": os.urandom(2 * MB), "small": b"x"}
    one = commit(store, files=files)
    names = {
        entry.path: (str(entry.object), entry.size) for entry in store.manifest(one.id).layers[0].entries
    }
    read: list[Any] = []
    monkeypatch.setattr("relive.store.pages.packreader.PackReader.fetch", lambda *given: read.append(given))
    monkeypatch.setattr("relive.store.pages.contents._read", lambda *given: read.append(given))
    two = take_again(store, names, one.id)
    monkeypatch.undo()
    assert read == []
    assert contents(store, two)[1] == files


def test_files_of_a_parent_from_before_they_lay_in_packs_are_taken_over(store, home):
    """Those that did not change are not staged anew: their objects are read."""
    files = {"kept": os.urandom(9999), "changed": b"1" * 5000}
    one = commit(store, capture="1", files=files, version=OLD)
    kept = next(e for e in store.manifest(one.id).layers[0].entries if e.path == "kept")
    staging = stage(store, pages=b"p", small={}, files={"changed": b"2" * 5000})
    with store.taking_in(one.id):
        layer = take_layer(store, staging.files, {"changed": b"2" * 5000})
        assert store.has_object(str(kept.object))
        layer = layer.model_copy(update={"entries": [*layer.entries, kept]})
        two = store.add(make_manifest(capture="2", parents=[one.id], layers=[layer]))
    staging.discard()
    assert contents(store, two.id)[1] == {"kept": files["kept"], "changed": b"2" * 5000}
    store.delete(one.id)
    assert not list((home / "objects").glob("*/*"))
    assert contents(store, two.id)[1]["kept"] == files["kept"]


def test_many_small_files_of_which_few_change_cost_little(store):
    files = {f"{number:04}": b"%d of many\n" % number * 20 for number in range(1500)}
    one = commit(store, capture="1", files=files)
    for number in (3, 700, 1400):
        files[f"{number:04}"] += b"more"
    two = commit(store, capture="2", files=files, parents=[one.id])
    assert two.new_bytes < 6000
    assert contents(store, two.id)[1] == files


def test_a_file_of_holes_comes_back_with_holes(store, tmp_path):
    data = bytes(8 * MB) + b"end"
    one = commit(store, files={"sparse": data})
    tree = store.files.lay_out_layer(store.manifest(one.id).layers[0])
    assert (tree / "sparse").read_bytes() == data
    assert (tree / "sparse").stat().st_blocks * 512 < MB


def test_the_name_and_the_prints_of_a_file_are_of_one_reading(tmp_path):
    path = Path(tmp_path / "f")
    path.write_bytes(bytes(70_000))
    assert (read_new(path).size, len(read_new(path).prints)) == (70_000, 2 * 16)
    path.write_bytes(b"small")
    assert read_new(path).prints == b""


def test_what_was_a_hole_is_one_again_page_by_page(tmp_path):
    """A file of 20 GB with a page in each was laid out with eight megabytes for each of these pages."""
    staged = tmp_path / "staged"
    with staged.open("wb") as file:
        for page in (0, 1, 900, 5000):
            file.seek(page * PAGE)
            file.write(b"x" * PAGE)
        file.truncate(6000 * PAGE + 5)
    wanted = staged.read_bytes()
    store = Store(tmp_path / "store")
    with store.taking_in():
        entry = FileEntry(path="a", kind=EntryKind.FILE, size=len(wanted), object=store.ingest_file(staged))
        layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=[entry])
        store.add(make_manifest(layers=[layer]))
    store.files.write_content(entry, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == wanted
    assert (tmp_path / "back").stat().st_blocks * 512 <= 8 * PAGE
    store.close()
