"""Which micro-commits were not compared is known from files, whatever died; and is told, where the kernel misled."""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.uncompared import (
    SpansDamaged,
    UncomparedChain,
    UncomparedSpan,
    closed,
    damaged_spans,
    drop_spans,
    latest_wall_ns,
    path_of,
    read_spans,
    spans_of,
)
from relive.model.commit import Manifest, TargetFacts


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The clock; each look at it is a moment later."""
    ticks = itertools.count(1000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ticks))
    return ticks


def taken(moment: int) -> Manifest:
    target = TargetFacts.model_construct(name="pay", life="one")
    return Manifest.model_construct(capture="c0ffee", target=target, taken_monotonic_ns=moment)


def with_a_base(home: Path) -> UncomparedChain:
    chain = UncomparedChain(home, "linux", "boot")
    chain.begin("one", is_of_this_boot=True)
    chain.base_taken()
    return chain


def uncompared(home: Path, *moments: int) -> list[int]:
    return [moment for moment in moments if any(not one.of_memory for one in spans_of(home, taken(moment)))]


def test_what_is_compared_clears_those_before_it(tmp_path: Path, now: Iterator[int]) -> None:
    chain = UncomparedChain(tmp_path, "linux", "boot")
    chain.begin("one", is_of_this_boot=True)
    full = next(now)
    chain.base_taken()
    moments = [next(now) for _ in range(6)]
    for moment, compared in zip(
        moments, [[False, False], [True, False], [False, True], *[[False, False]] * 3], strict=True
    ):
        chain.note(moment, compared, believes_memory=False)
    assert uncompared(tmp_path, full, *moments) == moments[2:], (
        "of the first process it was in the second commit"
    )
    chain.note(last := next(now), [True, True], believes_memory=False)
    assert uncompared(tmp_path, full, *moments, last) == []
    chain.end()
    assert read_spans(tmp_path, "one") == []


def test_what_a_dead_agent_left_stays_uncompared(tmp_path: Path, now: Iterator[int]) -> None:
    """Whatever the next one compares: that asked anew. Its full commit is none of them."""
    chain = with_a_base(tmp_path)
    chain.note(lost := next(now), [False], believes_memory=False)
    again = UncomparedChain(tmp_path, "linux", "boot")
    again.begin("one", is_of_this_boot=True)
    full = next(now)
    again.base_taken()
    again.note(known := next(now), [True], believes_memory=False)
    again.note(believed := next(now), [False], believes_memory=False)
    again.end()
    after = next(now)
    assert uncompared(tmp_path, lost, full, known, believed, after) == [lost, believed]
    again.begin("another", is_of_this_boot=True)
    assert uncompared(tmp_path, lost, believed) == [lost, believed]


def test_many_spans_are_joined_and_none_is_lost() -> None:
    spans = [UncomparedSpan(10 * at, 10 * at + 5, at, "linux", "boot") for at in range(300)]
    kept = closed(spans, 0, "boot")
    assert len(kept) < 300
    assert all(any(one.holds(10 * at + 3) for one in kept) for at in range(300))


def test_what_was_open_when_the_host_stopped_stays_so_under_another_clock(
    tmp_path: Path, now: Iterator[int]
) -> None:
    """A container has one life in many boots; the clock of each begins anew."""
    chain = with_a_base(tmp_path)
    chain.note(1_000_000, [False], believes_memory=False)
    again = UncomparedChain(tmp_path, "linux", "another boot")
    again.begin("one", is_of_this_boot=True)
    again.base_taken()
    again.note(next(now), [True], believes_memory=False)
    again.end()
    assert uncompared(tmp_path, 1_000_000) == [1_000_000]
    left = read_spans(tmp_path, "one")
    many = [UncomparedSpan(at, at + 1, at, "linux", "another boot") for at in range(300)]
    for spans in ([*left, *many], [*many, *left], [UncomparedSpan(5000, 5001, 1, "linux", "a third"), *many]):
        kept = closed(spans, 9, "another boot")
        assert len(kept) < 300
        assert all(any(one.holds(last) for one in kept) for last in (1, 300))
    assert any(one.holds(1_000_000) for one in closed([*many, *left], 9, "another boot"))
    assert any(one.holds(1_000_000) for one in closed([*left, *many], 9, "another boot"))


def test_one_kernel_that_misled_makes_suspect_what_believed_it_before(
    tmp_path: Path, now: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of agents that died; not what believed another kernel, nor what is taken and compared later."""
    suspects = SuspectCaptures(tmp_path)
    chain = with_a_base(tmp_path)
    chain.note(before := next(now), [False], believes_memory=False)
    assert not suspects.is_suspect(taken(before))
    suspects.add_uncompared("another", of_memory=False)
    assert not suspects.is_suspect(taken(before))
    with monkeypatch.context() as patched:  # the clock was set back meanwhile
        patched.setattr(time, "time_ns", lambda: 1)
        suspects.add_uncompared("linux", of_memory=False)
    assert suspects.is_suspect(taken(before))
    chain.note(later := next(now), [True], believes_memory=False)
    chain.note(last := next(now), [False], believes_memory=False)
    assert [suspects.is_suspect(taken(one)) for one in (before, later, last)] == [False, False, False]


def test_no_comparison_clears_what_believed_counters_of_memory_before(
    tmp_path: Path, now: Iterator[int]
) -> None:
    """Neither one on the same base, nor on the next, nor the end of the agent; nor does other distrust make these suspect."""
    suspects = SuspectCaptures(tmp_path)
    chain = with_a_base(tmp_path)
    chain.note(asked := next(now), [False], believes_memory=False)
    chain.note(believed := next(now), [False], believes_memory=True)
    chain.note(next(now), [True], believes_memory=False)
    chain.begin("one", is_of_this_boot=True)
    chain.base_taken()
    chain.note(compared := next(now), [True], believes_memory=False)
    chain.end()
    assert uncompared(tmp_path, asked, believed, compared) == []
    suspects.add_uncompared("linux", of_memory=False)
    suspects.add_uncompared("another", of_memory=True)
    assert not any(suspects.is_suspect(taken(one)) for one in (asked, believed, compared))
    suspects.add_uncompared("linux", of_memory=True)
    assert [suspects.is_suspect(taken(one)) for one in (asked, believed, compared)] == [False, True, False]


def test_spans_of_an_older_agent_are_read(tmp_path: Path) -> None:
    path = path_of(tmp_path, "one")
    path.parent.mkdir()
    told = json.dumps([[5, None, 1, "linux", "boot"]]).encode()
    path.write_bytes(b"%08x %s" % (zlib.crc32(told), told))
    assert read_spans(tmp_path, "one") == [UncomparedSpan(5, None, 1, "linux", "boot", of_memory=False)]


@pytest.mark.parametrize("is_of_this_boot", [True, False])
@pytest.mark.parametrize("damage", ["{", "", "[[1]]"])
def test_a_damaged_file_is_said_and_written_anew_by_the_next_full_commit(
    tmp_path: Path, now: Iterator[int], damage: str, is_of_this_boot: bool
) -> None:
    """All of its life so far counts as not compared, whichever kernel it believed; what is compared later does not."""
    path_of(tmp_path, "one").parent.mkdir()
    path_of(tmp_path, "one").write_text(damage)
    before = next(now)
    with pytest.raises(SpansDamaged, match="damaged"):
        spans_of(tmp_path, taken(before))
    assert [name for name, _ in damaged_spans(tmp_path)] == ["one"]
    chain = UncomparedChain(tmp_path, "linux", "boot")
    chain.begin("one", is_of_this_boot=is_of_this_boot)
    chain.base_taken()
    chain.note(known := next(now), [True], believes_memory=False)
    chain.end()
    assert list(damaged_spans(tmp_path)) == []
    # Of a life of several boots nobody knows when it ended, by their clocks.
    assert uncompared(tmp_path, 0, before, known) == ([0, before] if is_of_this_boot else [0, before, known])
    SuspectCaptures(tmp_path).add_uncompared("any other", of_memory=True)
    assert SuspectCaptures(tmp_path).is_suspect(taken(before))


def test_no_flipped_bit_is_believed(tmp_path: Path) -> None:
    chain = with_a_base(tmp_path)
    chain.note(time.monotonic_ns(), [False], believes_memory=False)
    sound = path_of(tmp_path, "one").read_bytes()
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path_of(tmp_path, "one").write_bytes(damaged)
        with pytest.raises(SpansDamaged):
            read_spans(tmp_path, "one")


def test_spans_of_two_kernels_that_are_joined_are_of_any() -> None:
    spans = [UncomparedSpan(at, at + 1, at, "old" if at < 200 else "new", "boot") for at in range(0, 600, 2)]
    kept = closed(spans, 0, "boot")
    for moment, kernel in ((1, "old"), (401, "new")):
        assert any(one.holds(moment) and one.believed(kernel) for one in kept)


def test_a_target_may_be_named_like_what_is_being_written(tmp_path: Path) -> None:
    chain = UncomparedChain(tmp_path, "linux", "boot")
    chain.begin("web.new", is_of_this_boot=True)
    chain.base_taken()
    chain.note(time.monotonic_ns(), [False], believes_memory=False)
    assert latest_wall_ns(tmp_path) > 0


def test_what_cannot_be_read_is_not_written_anew(tmp_path: Path) -> None:
    path_of(tmp_path, "one").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        UncomparedChain(tmp_path, "linux", "boot").begin("one", is_of_this_boot=True)


def test_only_what_nothing_needs_is_dropped(tmp_path: Path) -> None:
    for life in ("open", "ended", "pid:7", "needed"):
        chain = UncomparedChain(tmp_path, "linux", "boot")
        chain.begin(life, is_of_this_boot=True)
        chain.base_taken()
        chain.note(time.monotonic_ns(), [False], believes_memory=False)
        if life != "open":  # an agent relies on it
            chain.end()
    later = max(path.stat().st_mtime_ns for path in (tmp_path / "uncompared").iterdir()) + 1
    drop_spans(tmp_path, set(), 0, "boot")
    assert len(list((tmp_path / "uncompared").iterdir())) == 4
    drop_spans(tmp_path, {"needed", "pid:7"}, later, "boot")
    lives = ("open", "ended", "pid:7", "needed")
    assert [bool(read_spans(tmp_path, life)) for life in lives] == [True, False, True, True]
    drop_spans(tmp_path, {"needed", "pid:7"}, later, "another boot")
    assert not path_of(tmp_path, "open").exists()
