"""Sending again, to a service that takes connections and says nothing; the rest is in tests/real/test_replay.py."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import socket
from dataclasses import replace
from typing import Any

import pytest

from relive.model.outcome import End
from relive.replay.plan import Hangup, Pace, ReplayPlan, ReplayStep
from relive.replay.sender import Sender

from .test_plan import exchange, plan

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_what_waited_for_a_service_that_died_is_given_up_without_a_word() -> None:
    made: ReplayPlan = plan([exchange(1, 110, 120), exchange(2, 130, 140), exchange(3, 150, 160)], subject=3)
    said: list[dict[str, Any]] = []

    async def carry_out(address: tuple[str, int]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
        died = asyncio.Event()
        sender = Sender(os.getpid(), address, {}, pace=Pace.FAST, limit=30.0, cursor=100)
        asyncio.get_running_loop().call_later(0.05, died.set)
        await sender.carry_out(made, died, lambda: None)
        sender.close()
        assert list(sender.answers) == [1]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(carry_out(listener.getsockname()))
    gc.collect()
    assert said == []


@pytest.mark.parametrize(("took_ns", "others"), [(1000, 0.01), (10**9, 0.1)])
def test_a_service_that_leaves_requests_unanswered_is_not_waited_for_each_time_as_long(
    monkeypatch: pytest.MonkeyPatch, took_ns: int, others: float
) -> None:
    """But those count not that had no answer in that time when they were recorded either: they hang as they did."""
    monkeypatch.setattr("relive.replay.sender._BRIEFLY", 0.01)
    asked = [exchange(n, 100 + 10 * n, 105 + 10 * n, status=200) for n in range(1, 6)]
    ended = [
        replace(one, ended_mono_ns=one.started_mono_ns + (took_ns if one.number < 3 else 1000))
        for one in asked
    ]
    made = plan(ended, subject=5)

    async def carry_out(address: tuple[str, int]) -> list[float | None]:
        sender = Sender(os.getpid(), address, {}, pace=Pace.FAST, limit=0.1, cursor=100)
        await sender.carry_out(made, asyncio.Event(), lambda: None)
        sender.close()
        return [answer.seconds for _, answer in sorted(sender.answers.items())]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        waited = asyncio.run(carry_out(listener.getsockname()))
    assert waited == [0.1, 0.1, pytest.approx(others, abs=0.001), pytest.approx(others, abs=0.001), 0.1]


def test_pipelined_requests_are_sent_before_the_answer_to_the_one_before_and_in_one_go() -> None:
    """GIVEN three requests on one connection, the second begun before the first had its answer, the third after it
    THEN two arrive before any answer, in one piece; the third after them, on the same connection.
    """
    one, two = exchange(1, 110, 121, connection=7), exchange(2, 110, 122, connection=7)
    made: ReplayPlan = plan([one, two, exchange(3, 130, 140, connection=7)], subject=3)
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answers in (2, 1):
            received.append(await reader.read(1 << 16))
            for _ in range(answers):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async def carry_out() -> Sender:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        sender = Sender(os.getpid(), address, {}, pace=Pace.FAST, limit=30.0, cursor=100)
        async with server:
            await sender.carry_out(made, asyncio.Event(), lambda: None)
        sender.close()
        return sender

    sender = asyncio.run(carry_out())
    assert received == [2 * one.request_bytes(), one.request_bytes()]
    assert [
        (answer.end, answer.status, bytes(answer.body)) for _, answer in sorted(sender.answers.items())
    ] == [(End.ANSWERED, 200, b"ok")] * 3


def test_a_connection_that_breaks_within_an_answer_ends_it() -> None:
    made: ReplayPlan = plan([exchange(1, 110, 120)], subject=1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
        writer.close()

    async def carry_out() -> dict[int, Any]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        sender = Sender(os.getpid(), address, {}, pace=Pace.FAST, limit=30.0, cursor=100)
        async with server:
            await sender.carry_out(made, asyncio.Event(), lambda: None)
        sender.close()
        return sender.answers

    (answer,) = asyncio.run(carry_out()).values()
    assert (answer.end, answer.status, bytes(answer.body)) == (End.BROKEN, 200, b"ok")


@pytest.mark.parametrize("listens", [True, False])
def test_what_comes_on_a_connection_that_the_service_has_closed_is_sent_on_a_new_one(listens: bool) -> None:
    """GIVEN a connection that the service closes after an answer, as it does with idle ones
    THEN the next request on it has another one, and is broken off only where the service listens no more.
    """
    made = plan([exchange(1, 110, 120, connection=7), exchange(2, 130, 140, connection=7)], subject=2)

    async def carry_out() -> Sender:
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            if not listens:
                server.close()
            writer.close()
            await writer.wait_closed()
            closed.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        sender = Sender(
            os.getpid(), server.sockets[0].getsockname(), {}, pace=Pace.FAST, limit=30.0, cursor=100
        )
        waited = sender._wait_for_turn

        async def after_it_was_closed(step: ReplayStep | Hangup, began: float) -> None:
            await waited(step, began)
            if isinstance(step, ReplayStep) and step.exchange.number == 2:
                await closed.wait()

        sender._wait_for_turn = after_it_was_closed  # type: ignore[method-assign]
        await sender.carry_out(made, asyncio.Event(), lambda: None)
        sender.close()
        server.close()
        return sender

    sender = asyncio.run(carry_out())
    assert sender.answers[1].end is End.ANSWERED
    assert sender.answers[2].end is (End.ANSWERED if listens else End.BROKEN)
    assert sender.sent_anew == ([2] if listens else [])


def test_what_came_in_the_moment_of_closing_is_sent_on_a_new_one() -> None:
    """GIVEN a kept connection that the service closes without having read the second request; THEN that one is sent again, once."""
    made = plan([exchange(1, 110, 120, connection=7), exchange(2, 130, 140, connection=7)], subject=2)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        if len(heads) == 1:  # closed with what it has not read: the kernel resets it
            sock = writer.get_extra_info("socket")
            writer.transport.pause_reading()
            while not select.select([sock], [], [], 0)[0]:
                await asyncio.sleep(0)
        writer.transport.abort()

    async def carry_out() -> Sender:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        sender = Sender(
            os.getpid(), server.sockets[0].getsockname(), {}, pace=Pace.FAST, limit=30.0, cursor=100
        )
        async with server:
            await sender.carry_out(made, asyncio.Event(), lambda: None)
        sender.close()
        return sender

    sender = asyncio.run(carry_out())
    assert [sender.answers[number].end for number in (1, 2)] == [End.ANSWERED, End.ANSWERED]
    assert (sender.sent_anew, len(heads)) == ([2], 2)


def test_a_client_that_hung_up_does_so_while_another_process_has_its_end_open_too() -> None:
    """As process 1 of a branch has those of the commit's clients: the service that serves one after the other goes on."""
    made = plan([exchange(1, 110, 120, connection=7, local_port=1), exchange(2, 130, 140)], subject=2)
    made = replace(made, hangups=[Hangup(7, 1, 0, frozenset({1})), Hangup(8, 2, 0, frozenset({1}))])

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_OK)
        writer.close()

    async def carry_out() -> list[bytes]:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            pairs = [
                (socket.create_connection(listener.getsockname()), listener.accept()[0]) for _ in range(2)
            ]
            for sock in (one for pair in pairs for one in pair):
                stack.enter_context(sock).settimeout(20)
            forged = {port: os.dup(pair[0].fileno()) for port, pair in enumerate(pairs, 1)}
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            address = server.sockets[0].getsockname()
            sender = Sender(os.getpid(), address, forged, pace=Pace.FAST, limit=30.0, cursor=100)
            pairs[0][1].send(_OK)
            async with server:
                await sender.carry_out(made, asyncio.Event(), lambda: None)
            sender.close()
            return [pair[1].recv(1 << 16) for pair in pairs] + [pairs[0][1].recv(1)]

    request = exchange(1, 110).request_bytes()
    assert asyncio.run(carry_out()) == [request, b"", b""]
