"""All memory of a commit, streamed and by page, and what differs between two: against the plain bytes."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest

from relive.errors import UsageError
from relive.images import criu_images_pb2 as pb
from relive.store import Store
from relive.store.pages.commit_memory import CommitMemory, compare
from relive.store.pages.size import PAGE

from .builders import commit

KEY = "pagemap-1.img"
Space = dict[int, int]  # address / 4096 -> what fills the page


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(Store(tmp_path / "store")) as made:
        yield made


def page(number: int) -> bytes:
    return np.random.default_rng(number).bytes(PAGE) if number else bytes(PAGE)


def pagemap(space: Space) -> bytes:
    """One entry a page, in the order of the addresses as they are given."""
    parts = [
        pb.PagemapHead(pages_id=1),
        *(pb.PagemapEntry(vaddr=at * PAGE, nr_pages=1, flags=4) for at in space),
    ]
    bodies = [one.SerializeToString() for one in parts]
    return struct.pack("<II", 0x54564319, 1) + b"".join(struct.pack("<I", len(one)) + one for one in bodies)


def taken(store: Store, space: Space, capture: str, parents: list[str] | None = None):
    pages = b"".join(page(number) for number in space.values())
    one = commit(store, pages=pages, small={KEY: pagemap(space)}, capture=capture, parents=parents or [])
    return store.facts(one.id), one.id


def opened(store: Store, facts) -> CommitMemory:
    return store.images.open_memory(facts)


def test_pages_come_as_they_were_taken_in(store):
    space = {at: at % 5 for at in range(300)}
    facts, _ = taken(store, space, "1")
    with opened(store, facts) as memory:
        whole = b"".join(part.tobytes() for part in memory.stream(KEY))
        assert whole == b"".join(page(number) for number in space.values())
        some = memory.read(KEY, np.array([3, 1, 299]))
        assert [one.tobytes() for one in some] == [page(3), page(1), page(4)]
        assert memory.small[KEY] == pagemap(space)


def test_what_differs_is_found_exactly_and_only_that_is_read(store):
    before = {at: at % 7 for at in range(500)}
    after = before | {10: 100, 200: 0, 499: 101} | {900: 1}
    del after[3]
    first, parent = taken(store, before, "1")
    second, _ = taken(store, after, "2", [parent])
    with opened(store, first) as ours, opened(store, second) as theirs:
        found = compare(ours, theirs, KEY)
    expected = [at for at in before if at in after and before[at] != after[at]]
    assert (sorted(found.differ.tolist()), found.compared <= len(expected)) == (expected, True)


def test_commits_that_share_nothing_are_compared_by_their_bytes(store):
    space = {at: at % 7 for at in range(1, 100)}
    first, _ = taken(store, space, "1")
    second, _ = taken(store, {**{at: space[at] for at in reversed(space)}, 50: 77}, "2")
    with opened(store, first) as ours, opened(store, second) as theirs:
        found = compare(ours, theirs, KEY)
        assert found.differ.tolist() == [50]
        assert compare(ours, ours, KEY).compared == 0


def test_a_commit_without_memory_is_refused(store):
    one = commit(store, version=2, capture="3")
    facts = store.facts(one.id).model_copy(update={"images": []})
    with pytest.raises(UsageError, match="memory of this commit cannot be read"):
        store.images.open_memory(facts)


def test_reading_goes_on_though_the_commit_is_dropped(store):
    facts, name = taken(store, {1: 5, 2: 6}, "1")
    with opened(store, facts) as memory:
        store.delete(name)
        assert b"".join(part.tobytes() for part in memory.stream(KEY)) == page(5) + page(6)
