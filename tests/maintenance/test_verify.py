"""Every damage is found, named, and laid to the commits that it spoils and to no other."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from relive.maintenance.frame_usage import frames_used
from relive.maintenance.problems import Kind
from relive.maintenance.verify import verify
from relive.model.commit import CommitId
from relive.store import Store
from relive.store.keyring import Keyring
from relive.store.pages.materialize import PageSource
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packwriter import PackWriter
from relive.store.pages.placement import FramePlace, Placement
from relive.store.pages.table import encode_index
from store.builders import OLD, beyond, commit
from store.series import Service, take
from store.test_damage import flip


def one_object(store: Store, commit_id: CommitId) -> Path:
    (entry,) = (entry for entry in store.manifest(commit_id).layers[0].entries if entry.object)
    assert entry.object is not None
    return store.internals.objects.path(entry.object)


def pack_of(store: Store, commit_id: CommitId) -> Path:
    """The pack that the commit wrote."""
    placement = store.internals.placements.read(commit_id)
    return store.internals.packs.path(placement.packs[placement.index.pack] or "")


@pytest.fixture
def two(store: Store) -> tuple[CommitId, CommitId]:
    """Commits that share nothing."""
    return (
        commit(store, capture="1", pages=os.urandom(300 * 4096), files={"f": b"one"}, version=OLD).id,
        commit(store, capture="2", pages=os.urandom(300 * 4096), files={"f": b"other"}).id,
    )


def test_a_store_that_is_whole_has_no_problems_and_all_of_it_was_read(store, two):
    report = verify(store, data=True)
    assert (report.commits, report.packs, report.objects, report.problems) == (2, 2, 2, [])
    frames = [frame for one in two for frame in read_frames(pack_of(store, one), pack_of(store, one).name)]
    assert report.bytes_read == sum(frame.stored for frame in frames) + len(b"one")
    assert verify(store).bytes_read == 0
    assert verify(store).problems == []


def cut(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, path.stat().st_size - 1)


def begin(path: Path) -> None:
    flip(path, 60)


DAMAGES: dict[str, tuple[Kind, Callable[[Store, CommitId], Path], Callable[[Path], None], bool]] = {
    "lost object": (Kind.OBJECT, one_object, Path.unlink, False),
    "cut object": (Kind.OBJECT, one_object, cut, False),
    "flipped object": (Kind.OBJECT, one_object, lambda path: flip(path, 1), True),
    "lost pack": (Kind.PACK, pack_of, Path.unlink, False),
    "cut pack": (Kind.PACK, pack_of, cut, False),
    "flipped page": (Kind.PACK, pack_of, begin, True),
    "lost placement": (
        Kind.PLACEMENT,
        lambda s, c: s.internals.directory / "placements" / c,
        Path.unlink,
        False,
    ),
    "flipped placement": (
        Kind.PLACEMENT,
        lambda s, c: s.internals.directory / "placements" / c,
        begin,
        False,
    ),
    "flipped manifest": (
        Kind.MANIFEST,
        lambda s, c: s.internals.directory / "manifests" / f"{c}.json",
        begin,
        False,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_laid_to_its_commit_alone(store, two, damage):
    kind, find, harm, needs_data = DAMAGES[damage]
    harm(find(store, two[0]))
    report = verify(store, data=True)
    assert [(problem.kind, problem.commits) for problem in report.problems] == [(kind, [two[0]])]
    assert report.spoiled == [two[0]]
    assert bool(verify(store).problems) is not needs_data
    assert [problem.kind for problem in verify(store, [two[0]], data=True).problems] == [kind]
    assert verify(store, [two[1]], data=True).problems == []


@pytest.fixture
def parent_and_child(store: Store) -> tuple[CommitId, CommitId]:
    """The child needs a part of its parent's pack."""
    service = Service(pages=300)
    parent = take(store, service, None).id
    for pages in service._memory.values():
        pages[:256] += 1_000_003
    service.live()
    return parent, take(store, service, parent).id


def test_a_damaged_frame_spoils_only_the_commits_that_use_it(store, parent_and_child):
    parent, _ = parent_and_child
    base = pack_of(store, parent)
    whole = base.read_bytes()
    spoiled = []
    for frame in read_frames(base, base.name):
        flip(base, frame.offset)
        (problem,) = verify(store, data=True).problems
        spoiled.append(tuple(problem.commits))
        base.write_bytes(whole)
    assert set(spoiled) == {(parent,), tuple(sorted(parent_and_child))}
    assert verify(store, data=True).problems == []


def test_a_frame_that_nobody_uses_any_more_spoils_nobody(store, parent_and_child):
    parent, child = parent_and_child
    base = pack_of(store, parent)
    store.delete(parent)
    frames = read_frames(base, base.name)
    dead = set(range(len(frames))) - frames_used(
        store.internals.placements.read(child), base.name, store.internals.packs
    )
    assert dead
    flip(base, frames[min(dead)].offset)
    (problem,) = verify(store, data=True).problems
    assert (problem.kind, problem.commits) == (Kind.PACK, [])


def test_a_signature_that_is_not_trusted_is_a_problem(store, home, two, tmp_path):
    (home.parent / "keys").rename(tmp_path / "elsewhere")
    here = Store(home)
    report = verify(here)
    assert {problem.code for problem in report.problems} == {"signature-invalid"}
    assert report.spoiled == sorted(two)
    here.close()


def test_a_sealed_store_without_its_key_is_still_read_byte_by_byte(tmp_path, home):
    Keyring(tmp_path / "keys").make_store_key()
    store = Store(home)
    one = commit(store, pages=os.urandom(40 * 4096)).id
    assert verify(store, data=True).problems == []
    (tmp_path / "keys" / "store.key").unlink()
    (problem,) = verify(store, data=True).problems
    assert (problem.code, problem.commits) == ("key-missing", [one])
    flip(pack_of(store, one), 60)
    (problem,) = verify(store, data=True).problems
    assert (problem.code, problem.commits) == ("object-corrupt", [one])
    store.close()


def test_an_index_that_fits_and_leads_to_other_pages_is_found_by_the_pages_alone(store):
    """GIVEN a commit whose index was written, and signed, with two pages exchanged."""
    pages = os.urandom(40 * 4096)
    good = commit(store, capture="1", pages=os.urandom(40 * 4096)).id
    one = commit(store, capture="2", pages=pages).id
    parts = store.internals
    placement = parts.placements.read(one)
    with PageSource(placement, parts.packs) as source:
        index = source.index
        index.tables["pages-1.img"].full[:2] = index.tables["pages-1.img"].full[1::-1].copy()
        writer = PackWriter(parts.packs)
        slots = writer.add_pages(np.frombuffer(pages, np.uint64).reshape(-1, 512))
        frame = writer.add_blob(encode_index(index), None)
        name = writer.finish()
    assert slots[0] == 0
    parts.placements.write(Placement(one, [name], FramePlace(0, frame), [], 0))
    assert verify(store).problems == []
    (problem,) = verify(store, data=True).problems
    assert (problem.kind, problem.code, problem.commits) == (Kind.PLACEMENT, "object-corrupt", [one])
    assert "pages-1.img" in problem.message
    assert verify(store, [good], data=True).problems == []


def test_tags_without_a_commit_are_problems(store, two):
    store.tag("good", two[0])
    (store.internals.directory / "tags" / "junk").write_text("no id")
    store.tag("lost", two[1])
    store.delete(two[1])
    found = [(problem.name, problem.code) for problem in verify(store).problems]
    assert found == [("junk", "object-corrupt"), ("lost", "ref-unknown")]


def test_what_was_dropped_while_it_looked_is_no_problem(store, home, two):
    """The second look is made with nothing being dropped any more."""
    other = Store(home)
    steps = []

    @contextmanager
    def progress(what, total):
        if what == "Reading packs, bytes":
            other.thin("pay", beyond(0))
        steps.append(what)
        yield lambda _done: None

    report = verify(store, progress=progress)
    assert len(steps) == 4
    assert (report.commits, report.problems) == (2, [])
    other.close()


# -- the index -------------------------------------------------------------------------------------------------------


def in_index(home, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(home / "index.sqlite", isolation_level=None)) as database:
        database.execute(statement, values)


TAMPERINGS = {
    "another time": "UPDATE commits SET taken_wall_ns = taken_wall_ns - 3600000000000 WHERE id = ?",
    "another name": "UPDATE commits SET name = 'other' WHERE id = ?",
    "another life": "UPDATE commits SET life = 'L9' WHERE id = ?",
    "another size": "UPDATE commits SET bytes = 7 WHERE id = ?",
    "another durable time": "UPDATE commits SET durable_us = 7 WHERE id = ?",
    "another sum": "UPDATE commits SET sum = 7 WHERE id = ?",
    "no line": "DELETE FROM commits WHERE id = ?",
}


@pytest.mark.parametrize("statement", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_a_changed_index_never_makes_a_name_mean_another_commit(store, home, statement):
    old, new = commit(store, capture="1", wall_ns=1), commit(store, capture="2", wall_ns=2)
    lines = store.log()
    store.close()
    with closing(Store(home)):  # so that it is known to follow the manifests
        pass
    in_index(home, statement, new.id)
    with closing(Store(home)) as again:
        assert again.resolve("pay") == again.resolve(new.id[:9]) == new.id
        assert again.get(new.id).taken_wall_ns == new.taken_wall_ns
        found = [line.id for line in again.log()]
    assert found == [new.id, old.id] == [line.id for line in lines]


def test_verify_tells_of_lines_that_were_changed_once_and_repair_of_none(store, home):
    new = commit(store, capture="2", wall_ns=2)
    store.close()
    in_index(home, TAMPERINGS["another time"], new.id)
    with closing(Store(home)) as again:
        (problem,) = verify(again).problems
        assert (problem.kind, problem.name, problem.commits) == (Kind.INDEX, new.id, [])
    with closing(Store(home)) as again:
        assert verify(again).problems == []


def test_a_line_that_is_wrong_by_a_right_sum_is_found_by_verify_and_made_anew_by_repair(store, home):
    """As a fault of this program would leave it."""
    new = commit(store, capture="2", wall_ns=2)
    manifest = store.manifest(new.id)
    store._index.add(
        new.id,
        manifest.model_copy(update={"taken_wall_ns": 77}),
        durable_us=None,
        size=new.bytes,
        new_bytes=new.new_bytes,
    )
    (problem,) = verify(store).problems
    assert (problem.kind, problem.name) == (Kind.INDEX, new.id)
    assert "taken_wall_ns" in problem.message
    assert store.renew_derived() == [f"index line of {new.id[:12]}"]
    assert verify(store).problems == []
    assert store.get(new.id).taken_wall_ns == 2


def test_a_bit_of_an_index_of_sqlite_is_found_and_made_anew(store, home):
    lines = [commit(store, capture=f"{n}", wall_ns=n) for n in range(3)]
    store.close()
    path = home / "index.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = database.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'commits_of_name'"
        (page,) = database.execute(query).fetchone()
    data = bytearray(path.read_bytes())
    at = data.index(b"pay", (page - 1) * size, page * size)
    data[at] ^= 1
    path.write_bytes(data)
    with closing(Store(home)) as again:
        assert {one.kind for one in verify(again).problems} == {Kind.INDEX}
        again.renew_derived()
        assert verify(again).problems == []
        assert [line.id for line in again.log("pay")] == [line.id for line in lines[::-1]]
