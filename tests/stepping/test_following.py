"""Records of a followed process: they come from where the service's own code runs, and may be anything."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator

import pytest

from relive.errors import PlaceUnfit, RestoreFailed
from relive.stepping import following
from relive.stepping.following import Followed, Following

HIT = {"kind": "hit", "pid": 2, "request": 1, "position": 3, "function": "pay", "values": []}


@pytest.fixture
def records() -> Iterator[Callable[..., Following]]:
    made: list[Following] = []

    def make(*lines: bytes, header: bytes = bytes(32)) -> Following:
        fd = os.memfd_create("records")
        os.write(fd, header + b"".join(lines))
        made.append(Following([], processes=[Followed(fd)]))
        return made[-1]

    yield make
    for one in made:
        one.close()
        one.close()


def test_hits_are_read_up_to_one_that_a_death_cut(records):
    line = json.dumps(HIT).encode()
    found, is_cut = records(line + b"\n", line[:20]).hits()
    assert [one.position for one in found] == [3] and not is_cut
    assert records(line + b"\n", b'{"kind": "full"}\n').hits()[1]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[]", b"1", b"{}", b'{"kind": "hit"}', json.dumps(HIT | {"pid": "x"}).encode()]
)
def test_what_cannot_be_understood_is_an_error_of_the_branch(records, line):
    with pytest.raises(RestoreFailed, match="cannot be understood"):
        records(line + b"\n").hits()


def test_an_expression_that_never_ended_and_the_lines_that_ran_are_known(records):
    header = (1).to_bytes(8, "little") + (7).to_bytes(8, "little") + bytes(16)
    assert records(header=header).is_evaluating() and records(header=header).lines() == 7
    assert not records().is_evaluating()


def test_a_descriptor_of_another_kind_is_neither_taken_nor_waited_for(tmp_path):
    """Which one it is the process says, and a FIFO without a writer would be waited for without an end."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waits = os.open(fifo, os.O_RDWR)
    plain = os.memfd_create("plain")
    try:
        for number, kind in ((waits, stat.S_ISREG), (plain, stat.S_ISFIFO)):
            with pytest.raises(ValueError, match="another kind"):
                following._opened(os.getpid(), number, os.O_RDONLY, kind)
    finally:
        os.close(waits)
        os.close(plain)


@pytest.mark.parametrize("told", [None, 7, {}, {"what": ["x"], "why": {}, "remedy": 1}])
def test_a_refusal_that_is_none_is_still_an_error(told):
    assert isinstance(following.refused(told), PlaceUnfit)
