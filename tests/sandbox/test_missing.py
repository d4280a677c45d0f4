"""Which pages are missing, against a model that knows every page by itself."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from relive.sandbox.lazy.missing import Missing, Stretch

SPACE = 60  # [pages] so few that changes meet

ranges = st.tuples(st.integers(0, SPACE - 1), st.integers(1, 20))
changes = st.one_of(
    st.tuples(st.just("drop"), ranges),
    st.tuples(st.just("move"), ranges, st.integers(0, 2 * SPACE)),
    st.tuples(st.just("fork")),
)


@st.composite
def beginnings(draw: st.DrawFn) -> list[Stretch]:
    """Stretches that do not overlap, not joined where they touch."""
    borders = sorted(draw(st.sets(st.integers(0, SPACE), max_size=12)))
    kept = [pair for pair in pairwise(borders) if draw(st.booleans())]
    return [Stretch(first, end, 1000 + 7 * first) for first, end in kept]


def pages_of(stretches: list[Stretch]) -> dict[int, int]:
    """Each missing page with where its content is."""
    return {page: one.content + page - one.first for one in stretches for page in range(one.first, one.end)}


def everything(missing: Missing) -> dict[int, int]:
    """What it holds, asked page by page."""
    found = {}
    for page in range(3 * SPACE + 20):
        stretch = missing.around(page, 1)
        if stretch is not None:
            assert (stretch.first, stretch.pages) == (page, 1)
            found[page] = stretch.content
    return found


@given(beginnings(), st.lists(changes, max_size=12))
def test_it_is_what_single_pages_would_be(beginning: list[Stretch], done: list[tuple]) -> None:
    missing, model = Missing(beginning), pages_of(beginning)
    for name, *details in done:
        if name == "fork":
            before, missing = missing, missing.fork()
            before.drop(0, 10 * SPACE)  # what becomes of the parent does not matter
            assert before.pages == 0
            continue
        first, pages = details[0]
        taken = {page: model.pop(page) for page in range(first, first + pages) if page in model}
        if name == "drop":
            assert pages_of(list(missing.drop(first, pages))) == taken
        else:
            destination = details[1]
            missing.move(first, destination, pages)
            for page in range(destination, destination + pages):
                model.pop(page, None)
            model |= {page - first + destination: content for page, content in taken.items()}
    assert everything(missing) == model
    assert missing.pages == len(model)


@given(beginnings(), st.integers(0, SPACE), st.integers(1, 9))
def test_a_window_is_what_is_missing_around_a_page(beginning: list[Stretch], page: int, window: int) -> None:
    model = pages_of(beginning)
    stretch = Missing(beginning).around(page, window)
    assert (stretch is None) == (page not in model)
    if stretch is not None:
        assert stretch.first <= page < stretch.end
        assert page // window * window <= stretch.first
        assert stretch.end <= (page // window + 1) * window
        assert pages_of([stretch]).items() <= model.items()


@given(beginnings(), st.integers(0, SPACE + 5), st.integers(1, 9))
def test_streaming_goes_on_behind_a_page_and_begins_anew(
    beginning: list[Stretch], page: int, most: int
) -> None:
    model = pages_of(beginning)
    stretch = Missing(beginning).after(page, most)
    if not model:
        assert stretch is None
        return
    assert stretch is not None and stretch.pages <= most
    assert stretch.first == min((one for one in model if one >= page), default=min(model))
    assert pages_of([stretch]).items() <= model.items()


@given(beginnings(), st.integers(1, 9))
def test_streaming_comes_to_an_end(beginning: list[Stretch], most: int) -> None:
    missing, model, page = Missing(beginning), pages_of(beginning), 0
    while (stretch := missing.after(page, most)) is not None:
        for one, content in pages_of([stretch]).items():
            assert model.pop(one) == content
        missing.drop(stretch.first, stretch.pages)
        page = stretch.end
    assert model == {}
