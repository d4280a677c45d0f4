"""Requests are sent again over HTTP/2, to a service that ``h2`` plays."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from relive.model.outcome import End
from relive.replay.connection import BranchConnection, connection_over, speaks_http2
from relive.replay.received import ReceivedAnswer

ASK = b"POST /%d HTTP/2\r\nhost: x\r\n\r\n"
Act = Callable[[H2Connection, dict[str, int]], None]


async def play(act: Act, bodies: list[bytes]) -> tuple[list[ReceivedAnswer], BranchConnection]:
    """Ask ``/0``, ``/1`` ... at once; ``act`` is called when all have come, with their streams by path."""
    streams: dict[str, int] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        service, whole = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8")), 0
        service.initiate_connection()
        while whole < len(bodies):
            for event in service.receive_data(await reader.read(1 << 16)):
                if isinstance(event, RequestReceived):
                    streams[dict(event.headers or ())[":path"]] = event.stream_id or 0
                elif isinstance(event, DataReceived):
                    service.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                elif isinstance(event, StreamEnded):
                    whole += 1
            writer.write(service.data_to_send())
        act(service, streams)
        writer.write(service.data_to_send())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, server.sockets[0].getsockname())
    connection = connection_over(sock, is_http2=speaks_http2(ASK))
    answers = [ReceivedAnswer() for _ in bodies]
    async with server:
        asked = (
            connection.exchange(ASK % at + body, [b"POST"], answers[at]) for at, body in enumerate(bodies)
        )
        await asyncio.gather(*asked)
    await connection.hang_up()
    return answers, connection


def test_requests_go_side_by_side_and_their_ends_are_told_apart() -> None:
    """GIVEN three requests, one with a body larger than the service's window
    WHEN the service answers the last, gives up the second and hangs up on the first
    THEN each has its own end.
    """

    def act(service: H2Connection, streams: dict[str, int]) -> None:
        service.send_headers(streams["/2"], [(":status", "418"), ("server", "me")])
        service.send_data(streams["/2"], b"tea")
        service.send_headers(streams["/2"], [("grpc-status", "13")], end_stream=True)
        service.reset_stream(streams["/1"])

    (lost, reset, answered), connection = asyncio.run(play(act, [b"", b"x" * 200_000, b"y"]))
    assert (answered.end, answered.status, bytes(answered.body)) == (End.ANSWERED, 418, b"tea")
    assert answered.trailers == [("grpc-status", "13")]
    assert answered.head == b"HTTP/2 418\r\nserver: me\r\n\r\n"
    assert (reset.end, lost.end) == (End.BROKEN, End.BROKEN)
    assert connection.is_kept
