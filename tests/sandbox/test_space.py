"""The memory of a process is filled in with what was committed, whatever the kernel answers; the kernel is played."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable

import numpy as np
import pytest

from relive.kernel.userfault import Copied, FaultEvent, FaultEventKind
from relive.sandbox.lazy import space as tested
from relive.sandbox.lazy.missing import Missing, Stretch
from relive.sandbox.lazy.space import LazyMemory
from relive.store.pages.page_reader import Content

WINDOW = tested.WINDOW
PAGE = 4096


class Kernel:
    """A userfaultfd over mappings of some pages; what is filled in is kept by page as its first eight bytes.

    Attributes:
        refuses: what the next calls answer instead of doing it.
    """

    def __init__(self, *mappings: range) -> None:
        self.mappings = mappings
        self.there: dict[int, int] = {}
        self.woken: list[int] = []
        self.refuses: list[int] = []
        self.pending: list[FaultEvent] = []

    def events(self) -> list[FaultEvent]:
        found, self.pending = self.pending, []
        return found

    def touch(self, page: int) -> None:
        self.pending.append(FaultEvent(FaultEventKind.FAULT, page))

    def copy(self, first: int, address: int, pages: int) -> Copied:
        if self.refuses:
            return Copied(0, self.refuses.pop(0))
        if not any(first in one and first + pages - 1 in one for one in self.mappings):
            return Copied(0, errno.ENOENT)
        for number in range(pages):
            if first + number in self.there:
                return Copied(number, errno.EEXIST)
            word = ctypes.string_at(address + number * PAGE, 8)
            self.there[first + number] = int.from_bytes(word, "little")
        return Copied(pages, 0)

    def zero(self, page: int) -> int:
        if self.refuses:
            return self.refuses.pop(0)
        if page in self.there:
            return errno.EEXIST
        self.there[page] = 0
        return 0

    def wake(self, first: int, pages: int) -> None:
        self.woken += range(first, first + pages)


class Commit:
    """Of which each page holds its own number, as it was then. ``refuses``: so many reads ahead cannot be had yet."""

    def __init__(self) -> None:
        self.refuses = 0
        self.rests = 0

    def read(self, first: int, pages: int) -> Content:
        made = np.zeros((pages, PAGE // 8), dtype=np.uint64)
        made[:, 0] = np.arange(first, first + pages)
        return Content(made)

    def read_on(self, first: int, pages: int) -> Content | None:
        if self.refuses:
            self.refuses -= 1
            return None
        return self.read(first, pages)

    def rest(self) -> None:
        self.rests += 1


Made = Callable[..., tuple[LazyMemory, Kernel, Commit]]


@pytest.fixture
def made() -> Made:
    def make(*stretches: Stretch, mappings: tuple[range, ...] = (range(10_000),)):
        kernel, commit = Kernel(*mappings), Commit()
        return LazyMemory(kernel, Missing(stretches), commit), kernel, commit  # type: ignore[arg-type]

    return make


def no_child(_: LazyMemory) -> None:
    raise AssertionError("there is no child")


def own(first: int, end: int) -> Stretch:
    return Stretch(first, end, first)


def test_what_is_touched_comes_with_its_neighbours(made: Made) -> None:
    space, kernel, _ = made(own(0, 100))
    kernel.touch(WINDOW + 5)
    space.attend(no_child)
    assert kernel.there == {page: page for page in range(WINDOW, 2 * WINDOW)}
    assert not space.is_waited_for


def test_a_page_that_never_held_anything_is_zeros(made: Made) -> None:
    space, kernel, _ = made(own(0, 10))
    kernel.touch(500)
    space.attend(no_child)
    assert kernel.there == {500: 0}


def test_who_touched_a_page_that_has_come_meanwhile_goes_on(made: Made) -> None:
    space, kernel, _ = made()
    kernel.there[7] = 70
    kernel.touch(7)
    space.attend(no_child)
    assert kernel.there == {7: 70} and kernel.woken == [7]


@pytest.mark.parametrize("page", [3, 500], ids=["committed", "never held anything"])
def test_a_page_is_given_again_when_an_event_had_to_be_read_first(made: Made, page: int) -> None:
    space, kernel, _ = made(own(0, 8))
    kernel.refuses = [errno.EAGAIN]
    kernel.touch(page)
    space.attend(no_child)
    assert space.is_waited_for and kernel.there == {}
    space.attend(no_child)
    assert not space.is_waited_for and kernel.there[page] == (page if page < 8 else 0)


def test_pages_that_are_there_already_are_left_as_they_are(made: Made) -> None:
    space, kernel, _ = made(own(0, 8))
    kernel.there = {2: 99, 3: 98}
    kernel.touch(6)
    space.attend(no_child)
    assert kernel.there == {0: 0, 1: 1, 2: 99, 3: 98, 4: 4, 5: 5, 6: 6, 7: 7}
    assert space.missing.pages == 0


def test_at_the_border_of_two_mappings_the_page_comes_alone(made: Made) -> None:
    space, kernel, _ = made(own(0, 8), mappings=(range(4), range(4, 8)))
    kernel.touch(5)
    space.attend(no_child)
    assert kernel.there == {5: 5} and space.missing.pages == 7


def test_a_process_that_has_ended_waits_for_nothing(made: Made) -> None:
    space, kernel, _ = made(own(0, 8))
    kernel.refuses = [errno.ESRCH]
    kernel.touch(1)
    kernel.touch(2)
    space.attend(no_child)
    assert space.is_gone and not space.is_waited_for and kernel.there == {}


def test_moved_memory_gets_what_was_committed_where_it_was(made: Made) -> None:
    space, kernel, _ = made(own(0, 8))
    kernel.pending = [FaultEvent(FaultEventKind.REMAP, 4, pages=2, destination=100)]
    kernel.touch(101)
    space.attend(no_child)
    assert kernel.there == {100: 4, 101: 5}
    assert kernel.woken == [4, 5]


def test_what_was_thrown_away_comes_back_as_zeros(made: Made) -> None:
    space, kernel, _ = made(own(0, 8))
    kernel.pending = [
        FaultEvent(FaultEventKind.REMOVE, 0, pages=2),
        FaultEvent(FaultEventKind.UNMAP, 6, pages=2),
    ]
    kernel.touch(1)
    space.attend(no_child)
    assert kernel.there == {1: 0} and kernel.woken == [6, 7]
    assert space.missing.pages == 4


def test_a_child_has_what_is_missing_in_its_parent_at_that_moment(made: Made) -> None:
    """And is handed over before anything is given to its parent."""
    space, kernel, _ = made(own(0, 8))
    kernel.pending = [
        FaultEvent(FaultEventKind.UNMAP, 0, pages=4),
        FaultEvent(FaultEventKind.FORK, child=77),
    ]
    kernel.touch(5)
    children: list[tuple[LazyMemory, dict[int, int]]] = []
    space.attend(lambda child: children.append((child, dict(kernel.there))))
    ((child, there_before),) = children
    assert there_before == {}
    assert child.fault.descriptor == 77
    assert (child.missing.pages, space.missing.pages) == (4, 0)


def test_all_comes_by_and_by_and_then_the_commit_is_let_go(made: Made) -> None:
    space, kernel, commit = made(
        own(0, 700), Stretch(900, 950, 5000), mappings=(range(3), range(3, 700), range(900, 950))
    )
    while space.missing.pages:
        assert space.stream()
    assert kernel.there == {page: page for page in range(700)} | {
        900 + page: 5000 + page for page in range(50)
    }
    assert commit.rests == 1


def test_what_cannot_be_read_at_once_is_asked_for_later(made: Made) -> None:
    space, kernel, commit = made(own(0, 8))
    commit.refuses = 1
    assert not space.stream() and kernel.there == {}
    assert space.stream() and len(kernel.there) == 8


def test_pages_of_memory_that_is_not_there_any_more_are_forgotten(made: Made) -> None:
    """Nobody can ask for them: nothing of the restored memory is mapped at their place."""
    space, kernel, commit = made(own(0, 8), mappings=(range(6),))
    for _ in range(50):
        space.stream()
    assert kernel.there == {page: page for page in range(6)}
    assert space.missing.pages == 0 and commit.rests == 1


def test_what_is_touched_makes_the_next_steps_short(made: Made) -> None:
    """Who touches a page next shall not wait for a long copy."""
    space, kernel, _ = made(own(0, 2000))
    kernel.touch(0)
    space.attend(no_child)
    steps = []
    for _ in range(5):
        before = len(kernel.there)
        space.stream()
        steps.append(len(kernel.there) - before)
    assert steps == [WINDOW, 2 * WINDOW, 4 * WINDOW, tested._STREAMED, tested._STREAMED]


def test_what_is_given_early_is_waited_for_by_nobody(made: Made) -> None:
    space, kernel, commit = made(own(0, 100))
    space.give_early(WINDOW, commit.read(WINDOW, WINDOW))
    assert kernel.there == {page: page for page in range(WINDOW, 2 * WINDOW)}
    assert space.missing.pages == 100 - WINDOW
    kernel.touch(0)
    space.attend(no_child)
    assert space.touched == [0]


def test_what_is_there_or_no_whole_window_is_not_given_early(made: Made) -> None:
    space, kernel, commit = made(own(0, 100))
    kernel.touch(1)
    space.attend(no_child)
    before = dict(kernel.there)
    space.give_early(0, commit.read(0, WINDOW))  # it is there
    space.give_early(WINDOW, commit.read(WINDOW, WINDOW - 1))  # no window
    space.give_early(5000, commit.read(5000, WINDOW))  # never missing
    assert kernel.there == before
    assert space.missing.pages == 100 - WINDOW


def test_what_the_kernel_refuses_early_comes_when_it_is_touched(made: Made) -> None:
    space, kernel, commit = made(own(0, WINDOW))
    kernel.refuses = [errno.EAGAIN]
    space.give_early(0, commit.read(0, WINDOW))
    assert not kernel.there
    kernel.touch(3)
    space.attend(no_child)
    assert kernel.there == {page: page for page in range(WINDOW)}
