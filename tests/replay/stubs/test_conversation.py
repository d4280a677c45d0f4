"""One connection driven by a session: what is done, in what order, and that nobody can make it hold too much."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from relive.protocols.session import Act, Close, Reset, Send, Session
from relive.replay.stubs import conversation
from relive.replay.stubs.conversation import Conversation
from relive.replay.stubs.speed import Speed, parse_speed
from relive.replay.stubs.transport import Transport

from .sealed import SECOND, Script

MAX = parse_speed("max")
LIMIT = 60.0


def driven(
    session: Session,
    client: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    first: list[Act] | None = None,
    speed: Speed = MAX,
) -> list[str]:
    """Run a conversation with a client; returns the faults it told."""
    faults: list[str] = []

    async def work() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        client_end = socket.create_connection(listener.getsockname())
        stub_end = listener.accept()[0]
        listener.close()
        for sock in (client_end, stub_end):
            sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=client_end)
        run = asyncio.create_task(
            Conversation(Transport(stub_end), session, speed, faults.append).run(first or [])
        )
        try:
            await asyncio.wait_for(client(reader, writer), LIMIT)
        finally:
            writer.close()
        await asyncio.wait_for(run, LIMIT)
        assert stub_end.fileno() < 0

    asyncio.run(work())
    return faults


def test_it_says_what_the_session_wants_in_order_and_closes() -> None:
    acts: dict[bytes, list[Act]] = {b"one": [Send(b"1"), Send(b"2")], b"two": [Send(b"3"), Close()]}

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"one\ntwo\n")
        assert await reader.read() == b"0123"

    assert driven(Script(acts), client, first=[Send(b"0")]) == []


def test_what_follows_a_hang_up_is_said_and_then_it_is_over() -> None:
    session = Script({b"one": [Send(b"1", SECOND)]}, at_end=[Send(b"bye")])

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"one\n")
        writer.write_eof()
        assert await reader.read() == b"1bye"

    assert driven(session, client) == [] and session.has_ended


def test_a_reset_is_one() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"one\n")
        assert await reader.readexactly(1) == b"1"
        with pytest.raises(ConnectionResetError):
            await reader.read()

    driven(Script({b"one": [Send(b"1"), Reset()]}), client)


def test_pauses_are_kept_one_after_the_other_and_scaled() -> None:
    """What is asked twice at once is answered with both pauses, since answers come one after the other."""
    session = Script({b"one": [Send(b"1", SECOND), Send(b"2", SECOND)]})
    took: list[float] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        writer.write(b"one\none\n")
        await reader.readexactly(4)
        took.append(time.monotonic() - began)
        writer.write_eof()

    driven(session, client, speed=Speed(20))
    assert took[0] >= 0.2  # four pauses of a second, twenty times as fast


def test_a_pause_counts_from_the_question() -> None:
    """Not from the answer before, when that is long ago."""
    took: list[float] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            while time.monotonic() < began + 0.2 * (1 + len(took)):
                await asyncio.sleep(0.01)
            asked = time.monotonic()
            writer.write(b"one\n")
            await reader.readexactly(1)
            took.append(time.monotonic() - asked)
        writer.write_eof()

    began = time.monotonic()
    driven(Script({b"one": [Send(b"1", SECOND)]}), client, speed=Speed(10))
    assert min(took) >= 0.099


def test_who_asks_and_does_not_read_is_not_listened_to_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a service that asks for ever and reads nothing
    WHEN its questions have answers of a megabyte each
    THEN the stub holds a few of them, and goes on when it reads.
    """
    monkeypatch.setattr(conversation, "_MOST_WAITING", 1 << 20)
    session = Script({b"q": [Send(b"x" * (1 << 20))]})

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked = 0
        try:
            while asked < 64 << 20:
                writer.write(b"q\n" * 4096)
                await asyncio.wait_for(writer.drain(), 0.5)
                asked += 8192
        except TimeoutError:
            pass
        assert len(session.fed) < 2 << 20, "it reads on"
        writer.transport.abort()

    driven(session, client)


def test_a_session_that_fails_breaks_its_own_connection_and_is_told() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"unknown\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    (fault,) = driven(Script({}), client)
    assert fault == "the Script failed: KeyError: b'unknown'"


def test_a_service_that_resets_ends_it() -> None:
    session = Script({b"one": [Send(b"1", 3600 * SECOND)]})

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"one\n")
        await writer.drain()
        writer.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        writer.transport.abort()

    assert driven(session, client, speed=Speed(1)) == []


def test_what_comes_unasked_is_not_waited_for_when_the_service_says_something() -> None:
    """A notification that is due in an hour comes when the service asks on, before the answer; an answer is waited for."""
    acts: dict[bytes, list[Act]] = {
        b"listen": [Send(b"listening", SECOND // 10), Send(b" told", 3600 * SECOND, unasked=True)],
        b"ask": [Send(b" answered", SECOND // 10)],
        b"wait": [Close(3600 * SECOND, unasked=True)],
    }
    took: list[float] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        writer.write(b"listen\n")
        assert await reader.readexactly(9) == b"listening"
        writer.write(b"ask\n")
        assert await reader.readexactly(14) == b" told answered"
        took.append(time.monotonic() - began)
        writer.write(b"wait\n")
        writer.write_eof()
        assert await reader.read() == b""

    driven(Script(acts), client, speed=Speed(1))
    assert 0.2 <= took[0] < 3600
