"""A dictionary is used and continued while it helps, and given up when it does not; what a page needs is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.store.pages.dictionary import Dictionary
from relive.store.pages.dictionary_policy import Generation, begun, may_begin, may_use

MEGA = 1 << 20
FIRST = begun(3, Dictionary(b"root"), after=None)


def after(generation: Generation, *, saves: float = 0.9, raw: int = MEGA) -> Generation:
    return generation.after(raw, lambda: (int(1000 * (1 - saves)), 1000))


def onward(generation: Generation) -> Generation:
    """Its next commit, which helps."""
    if generation.adds_node:
        return generation.with_node(3 + generation.number, b",%d" % generation.number)
    return after(generation)


def test_a_commit_of_few_or_of_very_many_pages_begins_none():
    assert [may_begin(None, pages) for pages in (1, 63, 64, 8192, 8193)] == [False, False, True, True, False]


def test_one_that_is_in_use_is_not_exchanged():
    assert may_use(FIRST, 1)
    assert not may_begin(FIRST, 100)
    assert not may_use(None, 1)


def test_a_commit_is_compressed_against_few_packs_and_mostly_against_a_recent_one():
    generation, distances, paths = FIRST, [], []
    while may_use(generation, 1):
        against = generation.against
        distances.append(generation.number - against.number)
        paths.append(against.dictionary.data.decode())
        assert against.pack == 3 + against.number
        generation = onward(generation)
    assert len(paths) == 63
    assert [paths[number - 1] for number in (3, 4, 5, 8, 16, 21, 48, 52, 60, 63)] == [
        "root",
        "root",
        "root,4",
        "root",
        "root",
        "root,16,20",
        "root",
        "root,48",
        "root,48",
        "root,48,60",
    ]
    assert max(path.count(",") for path in paths) == 2
    assert sum(distance <= 3 for distance in distances) >= 0.75 * len(distances)
    assert generation.is_spent and may_begin(generation, 100)


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_nodes_continue_each_other_from_the_root_whatever_helps(helps):
    generation = FIRST
    for one in helps:
        if not may_use(generation, 1):
            break
        generation = onward(generation) if one or generation.adds_node else after(generation, saves=0.1)
        numbers = [node.number for node in generation.nodes]
        assert numbers[0] == 0 and numbers == sorted(set(numbers)) and len(numbers) <= 3
        for before, behind in zip(generation.nodes, generation.nodes[1:], strict=False):
            assert behind.dictionary.data == before.dictionary.data + b",%d" % behind.number


def test_a_few_bytes_tell_nothing():
    assert after(FIRST, saves=0.0, raw=60_000) == FIRST


def test_what_it_saves_is_found_out_only_behind_a_node():
    def unasked() -> tuple[int, int]:
        raise AssertionError("nobody needs to know")

    generation = FIRST.after(MEGA, lambda: (1, 1000))
    assert generation.number == 2 and generation.after(MEGA, unasked).number == 3
    assert FIRST.after(1000, unasked) == FIRST


def waits(generation: Generation) -> int:
    """Commits until another is tried."""
    count = 0
    while not may_begin(generation, 100):
        assert not may_use(generation, 100)
        generation, count = generation.unused(), count + 1
    return count


def test_one_that_does_not_help_is_given_up_and_the_next_is_tried_later_and_later():
    generation, found = FIRST, []
    for _ in range(7):
        generation = after(generation, saves=0.1)
        found.append(waits(generation))
        for _ in range(found[-1]):
            generation = generation.unused()
        generation = begun(5, Dictionary(b""), after=generation)
    assert found == [1, 2, 4, 8, 16, 32, 32]
    helped = after(generation)
    assert helped.patience == 1
