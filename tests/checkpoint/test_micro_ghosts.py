"""The times of files without a name, in images of commits on top of another."""

from __future__ import annotations

import struct

import pytest

from relive.checkpoint.micro_ghosts import BaseGhosts
from relive.checkpoint.micro_record import FullCommitNeeded, GhostFacts
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, image_like, messages

MAGIC = struct.pack("<II", 0x54564319, 0)
NOW = GhostFacts(1000, 1001, (30, 5_000), (40, 6_000))


@pytest.fixture
def small() -> dict[str, bytes]:
    time = pb.Timeval(tv_sec=1, tv_usec=2)
    return {
        "remap-fpath.img": image_like(MAGIC, [pb.RemapFilePathEntry(orig_id=7, remap_id=26, remap_type=1)]),
        "ghost-file-1a.img": image_like(
            MAGIC, [pb.GhostFileEntry(uid=0, gid=0, mode=0o100600, atim=time, mtim=time)]
        ),
    }


def test_times_and_owner_are_those_of_now(small: dict[str, bytes]) -> None:
    [(name, image)] = BaseGhosts(small, {7: NOW}).follow({7: NOW}).items()
    entry = decode(name, messages(name, image)[0], pb.GhostFileEntry)
    assert (entry.uid, entry.gid, entry.mode) == (1000, 1001, 0o100600)
    assert [(one.tv_sec, one.tv_usec) for one in (entry.atim, entry.mtim)] == [(30, 5), (40, 6)]


@pytest.mark.parametrize("nameless", [{}, {8: NOW}, {7: NOW, 8: NOW}])
def test_others_than_criu_has_saved_are_not_followed(
    small: dict[str, bytes], nameless: dict[int, GhostFacts]
) -> None:
    with pytest.raises(FullCommitNeeded, match="without a name"):
        BaseGhosts(small, nameless)
    with pytest.raises(FullCommitNeeded, match="have changed"):
        BaseGhosts(small, {7: NOW}).follow(nameless)


def test_one_whose_image_is_missing_is_not_followed(small: dict[str, bytes]) -> None:
    del small["ghost-file-1a.img"]
    with pytest.raises(FullCommitNeeded, match="without a name"):
        BaseGhosts(small, {7: NOW})
