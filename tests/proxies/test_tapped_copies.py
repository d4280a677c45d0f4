"""What is put together from copies of packets that a test made: orders, losses and peers that lie, which no socket brings about."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.recording.dialogues import Dialogue, Tls, Way
from relive.recording.events import EventKind
from support.tapped_copies import ACK, CLOSED, DOWN, FIN, SYN, UP, Conversation, Copies


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    made = Copies(tmp_path / "egress")
    yield made
    made.close()


@pytest.fixture
def one(copies: Copies) -> Conversation:
    """Its numbers wrap around; SYN and its answer are there."""
    made = Conversation(copies, 7, (2**32 - 5, 2**32 - 3))
    made.begin()
    return made


def said(dialogue: Dialogue) -> tuple[bytes, bytes]:
    return dialogue.text(Way.UP), dialogue.text(Way.DOWN)


def endings(dialogue: Dialogue) -> dict[Way, str]:
    return {way: end.how for way, end in dialogue.endings.items()}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_order_the_bytes_are_those(copies: Copies, one: Conversation, seed: int) -> None:
    seeded = random.Random(seed)
    data = seeded.randbytes(20_000)
    cuts = [0, *sorted(seeded.sample(range(1, len(data)), 30)), len(data)]
    parts = [(low, data[low : high + seeded.choice((0, 900))]) for low, high in itertools.pairwise(cuts)]
    for at, part in seeded.sample(parts, len(parts)):
        one.put(DOWN, ACK, at, 0, part)
        one.put(DOWN, FIN | ACK, len(data))
    one.close(0, len(data) + 1)
    copies.take()
    (dialogue,) = copies.dialogues()
    assert said(dialogue) == (b"", data)
    assert endings(dialogue) == {Way.UP: "closed", Way.DOWN: "closed"}


def test_large_parts_that_stay_in_the_ring_until_they_are_written_are_those(
    copies: Copies, one: Conversation
) -> None:
    """Beside small ones, and such that wait for others, which are copied; the file gets them in several writes."""
    seeded = random.Random(1)
    sizes = [seeded.choice((1, 100, 8191, 8192, 8193, 65_536)) for _ in range(150)]
    data = seeded.randbytes(sum(sizes))
    places = list(itertools.accumulate(sizes, initial=0))
    parts = [(low, data[low:high]) for low, high in itertools.pairwise(places)]
    for number in range(0, len(parts), 10):
        parts[number : number + 2] = parts[number : number + 2][::-1]
    for at, part in parts:
        one.put(DOWN, ACK, at, 0, part)
    with copies.reader() as tapped:
        assert tapped.follow(0.0, 3, 0) == 0  # the first look took all
    (dialogue,) = copies.dialogues()
    assert said(dialogue) == (b"", data)


def test_what_a_killed_recorder_has_recorded_and_not_taken_out_is_recorded_once(copies: Copies) -> None:
    """Of one that goes on, one that is over and one that was reset."""
    for who, flags in ((1, ACK), (2, FIN | ACK), (3, 4)):
        conversation = Conversation(copies, who, (who * 1000, who * 2000))
        conversation.begin()
        conversation.put(UP, ACK, 0, 0, b"question")
        conversation.put(DOWN, ACK, 0, 8, b"answer")
        conversation.put(DOWN, flags, 6, 8)
        if flags & FIN:
            conversation.close(8, 7)
    copies.take()
    before = [(said(each), endings(each)) for each in copies.dialogues()]
    assert [each for each, _ in before] == [(b"question", b"answer")] * 3
    copies.put_back()
    copies.take()
    assert [(said(each), endings(each)) for each in copies.dialogues()] == before


def test_bytes_that_are_missing_where_the_service_closes_are_said(copies: Copies, one: Conversation) -> None:
    """The service has got 9 bytes, of which the last were not copied."""
    one.put(DOWN, ACK, 0, 0, b"some")
    copies.lose()
    one.close(0, 9)
    copies.take()
    first, rest = copies.dialogues()
    assert endings(first) == {Way.UP: "lost", Way.DOWN: "lost"}
    assert rest.endings[Way.DOWN].total == 9
    assert any(
        "before is missing" in event.fields["text"]
        for event in copies.events()
        if event.kind is EventKind.NOTE
    )


def test_bytes_that_are_missing_before_an_end_are_said(copies: Copies, one: Conversation) -> None:
    one.put(UP, FIN | ACK, 0)
    one.put(DOWN, FIN | ACK, 9, 1)
    one.put(CLOSED, 0)
    copies.take()
    (dialogue,) = copies.dialogues()
    assert endings(dialogue) == {Way.UP: "closed", Way.DOWN: "lost"}


@pytest.mark.parametrize(
    ("flags", "at", "acked"),
    [(FIN | ACK, 2, 4), (ACK, 5, 1000), (FIN | ACK, 5, 1000)],
    ids=["an end in what was taken", "what was never said", "both"],
)
def test_a_peer_that_lies_hides_nothing(
    copies: Copies, one: Conversation, flags: int, at: int, acked: int
) -> None:
    """Its segment is dropped by the socket, and so is what is in it."""
    one.put(UP, ACK, 0, 0, b"asks")
    one.put(DOWN, ACK, 0, 4, b"tells")
    one.put(DOWN, flags, at, acked, b"" if acked == 4 else b"no")
    one.put(UP, ACK, 4, 5, b" more")
    one.put(DOWN, ACK, 5, 9, b" more")
    copies.take()
    (dialogue,) = copies.dialogues()
    assert said(dialogue) == (b"asks more", b"tells more")
    assert not dialogue.endings


def test_an_end_that_the_socket_did_not_take_is_noticed(copies: Copies, one: Conversation) -> None:
    one.put(DOWN, FIN | ACK, 0)
    one.put(DOWN, ACK, 0, 0, b"tells")
    one.put(UP, ACK, 0, 5, b"asks")
    copies.take()
    assert copies.dialogues()[-1].text(Way.UP) == b"asks"
    assert len(copies.dialogues()) == 2


def test_what_waits_for_bytes_before_it_is_bounded(copies: Copies) -> None:
    """Six connections of which the first byte is missing, and 14 MiB are there: of one at least it is given up, and it goes on."""
    every = [Conversation(copies, who, (who, who)) for who in range(1, 7)]
    with copies.reader() as tapped:
        for conversation in every:
            conversation.begin()
        for conversation in every:
            for half in (range(7), range(7, 14)):  # as much as the ring holds
                for at in half:
                    conversation.put(DOWN, ACK, 1 + (at << 20), 0, bytes(1 << 20))
                tapped.take()
                copies.rewind()
        assert 1 <= tapped.counts().gaps <= 2
        every[-1].put(DOWN, ACK, 1 + (14 << 20), 0, b"goes on")
        tapped.take()
        assert tapped.counts().gaps <= 2
    assert copies.dialogues()[-1].text(Way.DOWN).endswith(b"goes on")


def test_what_is_said_with_syn_is_recorded_once(copies: Copies) -> None:
    fast = Conversation(copies, 7, (1, 2))
    fast.put(UP, SYN, 0, data=b"asks")  # of SYN, `at` is that of its bytes, less one
    fast.put(DOWN, SYN | ACK, -1, 4)
    fast.put(DOWN, ACK, 0, 4, b"tells")
    fast.put(UP, ACK, 0, 5, b"asks more")
    copies.take()
    assert [said(each) for each in copies.dialogues()] == [(b"asks more", b"tells")]


def test_a_lost_syn_is_no_loss_of_bytes_and_tls_stays_what_it_is(copies: Copies) -> None:
    conversation = Conversation(copies, 7, (1, 2))
    conversation.put(DOWN, SYN | ACK, -1)
    hello = b"\x16\x03\x01\x00\x05\x01"
    conversation.put(UP, ACK, 0, 0, hello)
    copies.lose()
    conversation.put(DOWN, ACK, 500, len(hello), b"secret")
    conversation.put(UP, ACK, len(hello), 506, b"secret")
    copies.take()
    first, second = copies.dialogues()
    assert (first.tls, second.tls) == (Tls.CLOSED, Tls.CLOSED)
    assert (first.text(Way.UP), second.text(Way.UP)) == (hello, b"secret")


def test_a_reader_that_begins_is_not_woken_any_more(copies: Copies) -> None:
    copies.set_note(1, 1)
    copies.take()
    assert copies.note(1) == 0
