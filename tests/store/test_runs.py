"""Pages are found again by their addresses, wherever they lie in the files."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.pagemap import Run, read_pagemap
from relive.store.pages.runs import match, page_files

PRESENT, LAZY, IN_PARENT = 4, 2, 1


def pagemap(number: int, *entries: pb.PagemapEntry) -> bytes:
    """A pagemap as CRIU writes it."""
    bodies = [
        pb.PagemapHead(pages_id=number).SerializeToString(),
        *(one.SerializeToString() for one in entries),
    ]
    return struct.pack("<II", 0x54564319, 0x56084025) + b"".join(
        struct.pack("<I", len(body)) + body for body in bodies
    )


def entry(first: int, pages: int, flags: int = PRESENT) -> pb.PagemapEntry:
    return pb.PagemapEntry(vaddr=first << 12, nr_pages=pages, flags=flags)


def test_only_present_pages_are_in_the_file():
    data = pagemap(3, entry(10, 2), entry(20, 5, LAZY), entry(30, 1, PRESENT | LAZY))
    assert read_pagemap("pagemap-1.img", data) == (3, [(10, 2), (30, 1)])


def test_pagemaps_of_old_criu_have_no_flags():
    old = pb.PagemapEntry(vaddr=5 << 12, compat_nr_pages=2)
    in_parent = pb.PagemapEntry(vaddr=9 << 12, compat_nr_pages=2, in_parent=True)
    assert read_pagemap("pagemap-1.img", pagemap(1, old, in_parent)) == (1, [(5, 2)])


@pytest.mark.parametrize("data", [b"", b"junk" * 5, pagemap(1)[:-1], pagemap(1, entry(1, 1, IN_PARENT))])
def test_what_is_no_whole_pagemap_is_refused(data):
    with pytest.raises(ObjectCorrupt):
        read_pagemap("pagemap-1.img", data)


def test_a_page_file_is_known_by_its_pagemap_and_else_by_its_name():
    small = {"pagemap-77.img": pagemap(2, entry(10, 2)), "pagemap-78.img": b"junk", "core-1.img": b""}
    described, other = page_files(small, {"pages-2.img": 8192, "pages-9.img": 5000})
    assert (described.key, list(described.runs)) == ("pagemap-77.img", [(10, 2)])
    assert (other.key, list(other.runs)) == ("pages-9.img", [(0, 2)])


def test_a_pagemap_of_another_size_is_not_believed():
    (file,) = page_files({"pagemap-77.img": pagemap(2, entry(10, 2))}, {"pages-2.img": 4096})
    assert (file.key, list(file.runs)) == ("pages-2.img", [(0, 1)])


@st.composite
def run_lists(draw: st.DrawFn) -> list[Run]:
    """Runs that do not overlap, as those of one pagemap, in any order."""
    gaps = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), max_size=8))
    runs, address = [], 0
    for gap, pages in gaps:
        runs.append((address + gap, pages))
        address += gap + pages
    return draw(st.permutations(runs))


def addresses(runs: list[Run]) -> list[int]:
    return [first + number for first, pages in runs for number in range(pages)]


@given(ours=run_lists(), theirs=run_lists())
def test_matches_are_exactly_the_pages_of_the_same_address(ours, theirs):
    mine, other = addresses(ours), addresses(theirs)
    found = {(a + n, b + n) for a, b, pages in match(ours, theirs) for n in range(pages)}
    assert found == {(mine.index(one), other.index(one)) for one in set(mine) & set(other)}
