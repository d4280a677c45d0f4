"""Who must be there, and what may be answered, decided from values."""

from __future__ import annotations

from relive.protocols.egress_window import EgressWindow
from relive.recording.dialogues import Dialogue, Tls
from relive.recording.events import Event, EventKind
from relive.replay.stubs.plan import Position, StubPlan, Stubs
from relive.sandbox.endpoints import Door

from .sealed import SECOND, TAKEN, dialogue, plain_of

HERE, THERE = ("10.0.0.5", 99), ("10.0.0.6", 99)
SAID = (("up", b"one"), ("down", b"ONE"), ("up", b"two"), ("down", b"TWO"))


def stubs(*dialogues: Dialogue, until_ns: int | None = None) -> Stubs:
    return Stubs(EgressWindow(TAKEN, list(dialogues)), plain_of, until_ns)


def position(one: Dialogue, up: int, down: int, is_open: bool = True) -> Position:
    return Position(one.origin, one.to, 1000 + up, 5000 + down, is_open)


def asked(found: Stubs, *positions: Position) -> list[bytes]:
    return given(found.plan(positions))


def given(plan: StubPlan) -> list[bytes]:
    """The questions of calls that may be given."""
    return [call.extra["question"] for call in plan.calls if call not in plan.used]


def test_a_connection_goes_on_where_it_stood() -> None:
    one = dialogue(1, HERE, *SAID, ("up", b"three"), ("down", b"THREE"))
    plan = stubs(one).plan([position(one, 6, 4)])
    ((name, where),) = plan.resumes.items()
    assert name == (one.origin, HERE) and (where.up, where.down) == (6, 4)
    assert plan.outside.continued == {name}
    # "two" had been asked whole, so that the connection answers it when it goes on.
    assert given(plan) == [b"three"] and [call.index for call in plan.used] == [0, 1]
    assert plan.notes == []


def test_a_question_of_which_a_byte_is_still_to_come_may_be_given() -> None:
    one = dialogue(1, HERE, *SAID)
    assert asked(stubs(one), position(one, 5, 3)) == [b"two"]


def test_calls_of_other_connections_count_from_the_commit_on_in_the_order_of_time() -> None:
    before = dialogue(1, HERE, *SAID, opened_ns=TAKEN - 3 * SECOND)  # "one" 2 s before, "two" at the commit
    after = dialogue(2, THERE, ("up", b"four"), ("down", b"FOUR"), opened_ns=TAKEN + SECOND)
    late = dialogue(3, HERE, ("up", b"five"), ("down", b"FIVE"), opened_ns=TAKEN + 50 * SECOND)
    assert asked(stubs(late, after, before)) == [b"four", b"five"]
    assert asked(stubs(late, after, before, until_ns=TAKEN + 10 * SECOND)) == [b"four"]


def test_ports_that_were_used_twice_are_told_apart_by_where_they_stood() -> None:
    first = dialogue(1, HERE, *SAID, opened_ns=TAKEN - 90 * SECOND, ended="closed", origin=("10.0.0.1", 7))
    second = dialogue(2, HERE, *SAID, origin=("10.0.0.1", 7))
    later = dialogue(3, HERE, *SAID, opened_ns=TAKEN + 5 * SECOND, origin=("10.0.0.1", 7))
    for one, base in ((first, 1), (second, 1000), (later, 100_000)):
        one.up_base = base
    ((_, where),) = stubs(first, second, later).plan([position(second, 3, 3)]).resumes.items()
    assert where.dialogue is second
    ((_, where),) = stubs(first, second, later).plan([position(second, 99_000, 3)]).resumes.items()
    assert where.dialogue is later  # the recorder may tell of it only after the commit


def test_addresses_are_the_same_however_they_are_written() -> None:
    one = dialogue(1, HERE, *SAID)
    mapped = Position(("::ffff:10.0.0.1", one.origin[1]), ("::ffff:10.0.0.5", 99), 1006, 5006, True)
    assert list(stubs(one).plan([mapped]).resumes) == [(mapped.own, mapped.peer)]


def test_what_cannot_go_on_is_closed_and_told() -> None:
    known = dialogue(1, HERE, *SAID)
    cases = {
        "is not recorded": Position(("10.0.0.1", 1), HERE, 0, 0, True),
        "half closed": position(known, 6, 6, is_open=False),
        "not kept up to the commit": position(known, 7, 6),
    }
    for words, one in cases.items():
        plan = stubs(known).plan([one])
        assert not plan.resumes and words in plan.notes[0] and "10.0.0.5:99" in plan.notes[0]
    for words, facts in {"encrypted": {"tls": Tls.OPENED}, "sequence numbers": {"up_base": None}}.items():
        other = dialogue(1, HERE, *SAID, **facts)
        assert words in stubs(other).plan([position(known, 6, 6)]).notes[0]


def test_a_destination_is_as_each_next_attempt_found_it() -> None:
    when = iter(range(1, 99))

    def attempt(to: tuple[str, int], error: str | None = None, before: bool = False) -> Dialogue:
        number = next(when)
        opened = TAKEN + (number - 50 if before else number) * SECOND
        return dialogue(number, to, opened_ns=opened, error=error, connect_ns=number)

    destinations = {
        **stubs(
            attempt(HERE, before=True),
            attempt(HERE, "ECONNREFUSED"),
            attempt(HERE, "ETIMEDOUT"),
            attempt(HERE),
            attempt(THERE, "ECONNREFUSED", before=True),
            attempt(("fd00::5", 1), before=True),
            attempt(("10.0.0.9", 1), "EHOSTUNREACH"),
        )
        .plan([])
        .destinations
    }
    assert [one.door for one in destinations[HERE].attempts] == [Door.REFUSES, Door.SILENT, Door.OPEN]
    assert destinations[HERE].attempt(1).took_ns == 3 and destinations[HERE].attempt(7).door is Door.OPEN
    assert destinations[THERE].attempt(0).door is Door.REFUSES
    assert destinations["fd00::5", 1].attempt(0).door is Door.OPEN
    assert (
        "10.0.0.9",
        1,
    ) not in destinations  # no address: the kernel says that it cannot be reached, as it did


def test_a_connection_that_goes_on_is_no_attempt() -> None:
    held = dialogue(1, HERE, *SAID, opened_ns=TAKEN + 1)  # the recorder told of it after the commit
    plan = stubs(held, dialogue(2, HERE, error="ECONNREFUSED", opened_ns=TAKEN + 2)).plan(
        [position(held, 6, 6)]
    )
    assert [one.door for one in plan.destinations[HERE].attempts] == [Door.REFUSES]


def test_name_servers_are_there() -> None:
    lookup = Event(1, TAKEN, TAKEN, EventKind.NAME_LOOKUP, data=b"", fields={"to": ("10.0.0.2", 53)})
    assert Stubs(EgressWindow(TAKEN, [], [lookup]), plain_of).plan([]).outside.names == (("10.0.0.2", 53),)


def test_what_makes_it_weaker_is_told() -> None:
    closed = dialogue(1, HERE, *SAID, tls=Tls.CLOSED)
    notes = Stubs(EgressWindow(TAKEN, [closed], [], 7, "a broken record"), plain_of).plan([]).notes
    assert len(notes) == 3
    assert "encrypted" in notes[0] and "7 events" in notes[1] and "a broken record" in notes[2]
