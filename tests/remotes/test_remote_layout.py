"""Where things lie at a remote, and in which pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.remotes.remote_layout import PIECE_SIZE, pieces_of, tag_path, whole_size
from relive.store.transfer_parts import PartKind, TransferPart

PACK = TransferPart(PartKind.PACK, "ab" + "c" * 62)
sizes = st.integers(0, 3 * PIECE_SIZE) | st.sampled_from([0, 1, PIECE_SIZE, 2 * PIECE_SIZE])


@given(sizes)
def test_pieces_cover_a_part_without_gap_and_none_is_too_large(size):
    pieces = pieces_of(PACK, size)
    assert [piece.offset for piece in pieces] == [sum(p.size for p in pieces[:n]) for n in range(len(pieces))]
    assert sum(piece.size for piece in pieces) == size
    assert all(piece.size <= PIECE_SIZE for piece in pieces)


@given(sizes)
def test_the_size_of_a_part_is_known_by_its_pieces(size):
    assert whole_size({piece.name: piece.size for piece in pieces_of(PACK, size)}) == size


@pytest.mark.parametrize(
    "there",
    [
        {},
        {"000001": PIECE_SIZE},
        {"000000": 5, "000001": 5},
        {"000000": PIECE_SIZE, "000002": 5},
        {"000000": PIECE_SIZE, "x": 5},
        {"000000": 1 << 60},
        {"000000": -1},
    ],
)
def test_a_part_with_a_gap_or_a_cut_piece_has_no_size(there):
    assert whole_size(there) is None


def test_paths_spread_over_directories_and_take_any_tag():
    assert pieces_of(PACK, 1)[0].path == f"packs/ab/{'c' * 62}/000000"
    assert tag_path("a/../b\udce9") != tag_path("a/../b")
