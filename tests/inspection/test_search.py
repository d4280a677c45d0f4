import contextlib
import re

import numpy as np
import pytest

from relive.errors import UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.patterns import parse_pattern
from relive.inspection.search import find, pieces
from relive.store import Store
from relive.store.pages.runs import PageFile
from relive.store.pages.size import PAGE
from store.builders import commit

FILE = "pages-1.img"


def as_pages(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint64).reshape(-1, PAGE // 8)


def page(text: bytes, at: int = 0) -> bytes:
    return (b"." * at + text).ljust(PAGE, b".")


def found_in(data: bytes, runs: list[tuple[int, int]], window: int, pattern: str) -> list[int]:
    """Addresses of matches, where the pages come ``window`` at a time."""
    file = PageFile(FILE, FILE, len(data), runs)
    wanted = parse_pattern(pattern)
    stream = (as_pages(data[at : at + window * PAGE]) for at in range(0, len(data), window * PAGE))
    addresses = []
    for piece in pieces(stream, file, wanted.overlap + 8):
        for begin, end in wanted.matches(piece.data):
            if not piece.is_told(begin, wanted.overlap):
                piece.line.told_until = piece.address + end
                addresses.append(piece.address + begin)
    return addresses


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("pattern", ["needle", "re:n[e]+dle", "hex:6e6565646c65"])
def test_a_match_is_told_once_wherever_parts_end(window, pattern):
    """Within a page, over the border of two, and twice in a page."""
    data = page(b"nee", PAGE - 3) + page(b"dle needle") + page(b"..needle needle")
    whole = [found.start() for found in re.finditer(b"needle", data)]
    assert len(whole) == 4
    assert found_in(data, [(0, 3)], window, pattern) == whole


@pytest.mark.parametrize("window", [1, 2])
def test_pages_that_do_not_follow_each_other_in_memory_hold_no_common_match(window):
    data = page(b"", 0)[:-3] + b"nee" + page(b"dle")
    assert found_in(data, [(0, 1), (7, 1)], window, "needle") == []
    assert found_in(data, [(7, 2)], window, "needle") == [8 * PAGE - 3]


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(Store(tmp_path / "store")) as made:
        yield made


def searched(store: Store, pages: bytes, pattern: str, *, most: int = 10, limit: float = 30, mask=None):
    one = commit(store, pages=pages, small={})
    with store.images.open_memory(store.facts(one.id)) as memory:
        return find(memory, parse_pattern(pattern), mask or Mask(), most=most, limit=limit)


def test_no_more_are_told_than_were_asked_for(store):
    found = searched(store, page(b"needle " * 5), "needle", most=3)
    assert (len(found.hits), found.more) == (3, True)
    assert searched(store, page(b"needle " * 3), "needle", most=3).more is False


def test_a_secret_is_masked_around_a_match_also_where_what_is_told_would_cut_it(store):
    mask = Mask()
    mask.learn_environment({"API_TOKEN": "correct-horse-battery-staple"})
    found = searched(
        store, page(b"needle" + b" " * 40 + b"correct-horse-battery-staple"), "needle", mask=mask
    )
    assert "horse" not in found.hits[0].text and "corr" not in found.hits[0].text
    found = searched(store, page(b"x correct-horse-battery-staple y"), "battery", mask=mask)
    assert "horse" not in found.hits[0].text


def test_an_expression_that_would_never_end_is_given_up(store):
    with pytest.raises(UsageError, match="took longer"):
        searched(store, page(b"a" * 60 + b"!"), "re:(a|aa)+$", limit=0.2)


def test_what_is_not_there_is_found_nowhere(store):
    found = searched(store, page(b"hay") * 3, "needle")
    assert (found.hits, found.searched) == ([], 3 * PAGE)


def test_a_secret_is_known_by_its_name_also_where_no_text_comes_before_it(store):
    """GIVEN a name behind bytes that are no text, and its value a second time under no name THEN neither is told."""
    source = b"\0" * 80 + b'api_key = "battery-4f7a6b5c"' + b"\0" * 40
    found = searched(store, page(b"first battery-4f7a6b5c") + page(source), "re:battery-[0-9a-f]+")
    assert len(found.hits) == 2
    assert all("4f7a" not in one.text and "<secret>" in one.text for one in found.hits)
    assert found.hits[1].text.startswith(".") and "\0" not in found.hits[1].text
