"""In a branch nobody answers what a service asks before it changes files."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from real.harness import TOOLS
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.notify_filters import ask_nobody, without_asking

STEP = struct.Struct("<HBBI")
RETURN, NOTIFY, ALLOW, ACTION = 0x06, 0x7FC00000, 0x7FFF0000, 0xFFFF0000


def test_the_filter_of_capsules_asks_no_more() -> None:
    code = subprocess.run([TOOLS / "relive-init", "--filter"], stdout=subprocess.PIPE, check=True).stdout
    before, after = list(STEP.iter_unpack(code)), list(STEP.iter_unpack(without_asking(code)))
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert changed == [((RETURN, 0, 0, NOTIFY), (RETURN, 0, 0, ALLOW))] * 2  # of 64 bits, of 32 bits


@given(st.binary(max_size=64))
def test_nothing_else_is_changed(code: bytes) -> None:
    found = without_asking(code)
    assert len(found) == len(code)
    whole = len(code) // 8 * 8
    for one, other in zip(STEP.iter_unpack(code[:whole]), STEP.iter_unpack(found[:whole]), strict=True):
        if not (one[0] == RETURN and one[3] & ACTION == NOTIFY):
            assert one == other


def test_all_filters_of_a_commit_are_looked_at(tmp_path: Path) -> None:
    ask_nobody(tmp_path)  # none
    asking = STEP.pack(RETURN, 0, 0, NOTIFY)
    entry = pb.SeccompEntry(
        seccomp_filters=[pb.SeccompFilter(filter=asking), pb.SeccompFilter(filter=asking, prev=0, flags=1)]
    )
    body = entry.SerializeToString()
    head = struct.pack("<III", 0x54564319, 0x64413049, len(body))
    (tmp_path / "seccomp.img").write_bytes(head + body)
    ask_nobody(tmp_path)
    (found,) = read_entries(tmp_path / "seccomp.img", pb.SeccompEntry)
    assert [one.filter for one in found.seccomp_filters] == [STEP.pack(RETURN, 0, 0, ALLOW)] * 2
    assert (found.seccomp_filters[1].prev, found.seccomp_filters[1].flags) == (0, 1)
