"""What a filter would answer is found as the kernel finds it."""

from __future__ import annotations

import struct
import subprocess

import pytest

from relive.config import load_settings
from relive.images.filter_answers import allows
from relive.images.notify_filters import without_asking
from relive.kernel.sandboxcalls import SANDBOX_FILTER

ALLOW, KILL, LOG = 0x7FFF0000, 0x80000000, 0x7FFC0000


def filter_of(*steps: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


ONLY_WRITE = filter_of((0x20, 0, 0, 0), (0x15, 0, 1, 1), (0x06, 0, 0, ALLOW), (0x06, 0, 0, KILL))


def test_a_filter_that_names_what_it_lets_through() -> None:
    assert allows(ONLY_WRITE, 1)
    assert not allows(ONLY_WRITE, 11)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0x06, 0, 0, LOG)], True),
        ([(0x05, 0, 0, 1), (0x06, 0, 0, KILL), (0x06, 0, 0, ALLOW)], True),
        ([(0x20, 0, 0, 4), (0x54, 0, 0, 0xFF), (0x25, 0, 1, 0x3D), (0x06, 0, 0, ALLOW), (0x06, 0, 0, KILL)], True),
        ([(0x20, 0, 0, 0), (0x45, 1, 0, 1), (0x06, 0, 0, KILL), (0x06, 0, 0, ALLOW)], True),
        ([(0x80, 0, 0, 0), (0x06, 0, 0, ALLOW)], False),
        ([(0x00, 0, 0, 0)], False),
        ([], False),
    ],
    ids=["log", "jump", "architecture", "bits", "unknown step", "no end", "empty"],
)  # fmt: skip
def test_steps(steps: list[tuple[int, int, int, int]], expected: bool) -> None:
    assert allows(filter_of(*steps), 11) is expected


@pytest.mark.parametrize("number", [11, 15, 202])
def test_filters_of_relive_let_criu_work(number: int) -> None:
    assert allows(SANDBOX_FILTER, number)
    init = load_settings().tools_path / "relive-init"
    following = subprocess.run([init, "--filter"], capture_output=True, check=True).stdout
    assert allows(without_asking(following), number)


def test_what_the_sandbox_forbids_is_not_allowed() -> None:
    assert not allows(SANDBOX_FILTER, 425)
