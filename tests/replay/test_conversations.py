"""Conversations sent again to small servers; the rest is in tests/real/test_redis.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relive.recording.connections import Said as SaidThing
from relive.recording.connections import connections_in
from relive.recording.events import EventKind
from relive.recording.exchanges import ExchangeEnd
from relive.recording.reader import Recording, RecordPosition
from relive.recording.writer import RecordingWriter
from relive.replay import conversations
from relive.replay.conversations import Conversed, conversed_words
from relive.replay.plan import Pace, ReplayPlan
from relive.replay.sender import Sender

from .test_plan import exchange, plan

UP, DOWN = EventKind.STREAM_TO_SERVICE, EventKind.STREAM_TO_CLIENT
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Said = tuple[int, EventKind, bytes]
ENDED = b""  # of a client


def planned(directory: Path, *said: Said, from_middle: int = 0) -> ReplayPlan:
    """``from_middle``: a connection whose beginning is not recorded."""
    writer = RecordingWriter(directory)
    for number in {one[0] for one in said}:
        fields = {"local_port": 4000 + number} | ({"from_middle": True} if number == from_middle else {})
        writer.append(EventKind.CONNECTION_OPENED, number, fields=fields)
    for number, kind, data in said:
        writer.append(kind, number, 0, data, {} if data else {"ended": True})
    writer.close()
    made = plan()
    return ReplayPlan(
        made.steps,
        None,
        0,
        conversations=connections_in(Recording(directory), 0, 1 << 60),
    )


async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Grants an upgrade, speaks at once, then answers each line in capitals."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nhello\n")
    while line := await reader.readline():
        writer.write(line.upper())
    writer.close()


def carried_out(made: ReplayPlan, serve: Serve, forged: dict[int, int] | None = None) -> Conversed:
    async def carry_out() -> Conversed:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        sender = Sender(os.getpid(), address, forged or {}, pace=Pace.FAST, limit=30.0, cursor=0)
        async with server:
            await sender.carry_out(made, asyncio.Event(), lambda: None)
        sender.close()
        return sender.conversed

    return asyncio.run(carry_out())


class Echo:
    """Answers each line in capitals, and says the order in which lines came."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.lines.append(line)
            writer.write(line.upper())
        self.ended += 1
        writer.write(b"bye")
        writer.close()


def test_each_piece_follows_all_that_was_said_before_it(tmp_path: Path) -> None:
    made = planned(
        tmp_path,
        *((1, UP, b"a"), (1, UP, b"b\n"), (1, DOWN, b"AB\n"), (2, UP, b"c\n"), (2, DOWN, b"C\n")),
        *((1, UP, b"d\n"), (1, DOWN, b"D\n"), (1, UP, ENDED), (1, DOWN, b"bye")),
    )
    echo = Echo()
    result = carried_out(made, echo)
    assert echo.lines == [b"ab\n", b"c\n", b"d\n"]
    assert echo.ended >= 1
    assert result == Conversed(connections=2, turns=4)
    assert conversed_words(result) == [
        "4 messages that are not HTTP/1 were sent again on 2 connections of clients"
    ]


def test_one_that_the_commit_holds_goes_on_over_its_own_end(tmp_path: Path) -> None:
    made = planned(tmp_path, (1, UP, b"go on\n"))
    ours, theirs = socket.socketpair()
    with theirs:
        result = carried_out(made, Echo(), {4001: ours.detach()})
        assert theirs.recv(100) == b"go on\n"
    assert result.turns == 1


def test_one_that_stood_before_goes_on_in_a_commit_that_holds_it_and_nowhere_else(tmp_path: Path) -> None:
    made = planned(tmp_path, (1, UP, b"go on\n"), (1, UP, b"and on\n"), (2, UP, b"hello\n"), from_middle=1)
    ours, theirs = socket.socketpair()
    with theirs:
        assert carried_out(made, Echo(), {4001: ours.detach()}).unsent == 0
        assert theirs.recv(100) == b"go on\nand on\n"
    echo = Echo()
    result = carried_out(made, echo)
    assert echo.lines == [b"hello\n"]
    assert (result.turns, result.unsent, result.unbegun) == (1, 2, 2)
    assert conversed_words(result)[1:] == ["2 could not be sent: how their connection began is not recorded"]


def test_what_follows_an_upgrade_is_said_on_the_connection_of_its_request(tmp_path: Path) -> None:
    one = exchange(1, 110, 120, connection=1, how_it_ended=ExchangeEnd.UPGRADED)
    one.request_head = b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    writer = RecordingWriter(tmp_path)
    writer.append(EventKind.REQUEST_STARTED, 1, 1, one.request_head, {"local_port": 4001})
    for kind, data in ((DOWN, b"hello\n"), (UP, b"a\n"), (DOWN, b"A\n"), (UP, b"b\n"), (DOWN, b"B\n")):
        writer.append(kind, 1, 1, data)
    writer.close()
    found = connections_in(Recording(tmp_path), 0, 1 << 60)
    result = carried_out(replace(plan([one]), conversations=found), upgrade)
    assert result == Conversed(connections=1, turns=2)


def test_a_service_that_speaks_first_is_heard_first(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        while line := await reader.readline():
            writer.write(b"250 " + line)
        writer.close()

    made = planned(tmp_path, (1, DOWN, b"220 mail\r\n"), (1, UP, b"EHLO x\n"), (1, DOWN, b"250 EHLO x\n"))
    assert carried_out(made, greet) == Conversed(connections=1, turns=1)


def test_another_answer_is_told_and_the_rest_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of an answer is waited for once: those behind it may have other lengths, too."""
    waits: list[asyncio.Timeout] = []
    timeout = asyncio.timeout

    def counted(seconds: float) -> asyncio.Timeout:
        waits.append(timeout(seconds))
        return waits[-1]

    monkeypatch.setattr(conversations, "_PATIENCE", 0.5)
    monkeypatch.setattr(conversations.asyncio, "timeout", counted)
    words = [b"%c\n" % letter for letter in b"abcdefgh"]
    said = [((1, UP, word), (1, DOWN, word.upper()[:-1] + b", and more\n")) for word in words]
    echo = Echo()
    result = carried_out(planned(tmp_path, *(one for pair in said for one in pair)), echo)
    assert echo.lines == words
    assert result.different == ((1, 1),)
    assert sum(one.expired() for one in waits) == 1
    assert "otherwise than recorded, from byte 1 on" in conversed_words(result)[1]


def test_what_is_heard_when_the_time_is_over_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the whole process stood still: the loop finds the time over, and what has come, in one round."""
    monkeypatch.setattr(conversations, "_PATIENCE", 0.0)
    heard = conversations._Heard([SaidThing(1, 0, 2, 0.0, RecordPosition(0, 0))])

    async def hear_late() -> None:
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(heard.wait_for(1))
        loop.call_soon(loop.call_soon, heard.hear, 1, 2)
        await waiting

    asyncio.run(hear_late())
    assert not heard._differs


def test_a_service_that_has_hung_up_gets_no_more(tmp_path: Path) -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    made = planned(
        tmp_path,
        *((1, UP, b"a\n"), (1, DOWN, b"A\n")),
        *((1, UP, b"b\n"), (1, DOWN, b"B\n")),
        (1, UP, b"c\n"),
    )
    result = carried_out(made, refuse)
    assert result.unsent >= 1
    assert "could not be sent" in conversed_words(result)[1]


def test_a_service_that_listens_no_more_has_nothing_sent(tmp_path: Path) -> None:
    made = planned(tmp_path, (1, UP, b"a\n"), (1, DOWN, b"A\n"), (1, UP, b"b\n"))

    async def carry_out() -> Conversed:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            address = gone.getsockname()
        sender = Sender(os.getpid(), address, {}, pace=Pace.FAST, limit=30.0, cursor=0)
        with contextlib.closing(sender):
            await sender.carry_out(made, asyncio.Event(), lambda: None)
        return sender.conversed

    assert asyncio.run(carry_out()) == Conversed(unsent=2)
