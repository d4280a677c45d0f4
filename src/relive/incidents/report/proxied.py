"""One request as the recording proxy saw it, with secrets masked."""

from __future__ import annotations

from relive.incidents.report.body import ReportBody
from relive.incidents.report.content_coding import coding_of, decoded
from relive.incidents.report.masking import Mask
from relive.model.value import Value
from relive.recording.exchanges import Exchange, ExchangeEnd
from relive.recording.grpc import GrpcStatus

__all__ = ["Proxied", "masked_exchange"]

_VERSION_WORDS = 3


class Proxied(Value):
    """A request and its answer.

    Attributes:
        number, connection: in the recording; sequence: of the event at which it began.
        version: as in the request line: "HTTP/1.1".
        headers, answer_headers: (name in lower case, value), in order.
        began_wall_ns, began_mono_ns: when it was handed on; answered_mono_ns, ended_mono_ns: of its answer's head and end, None
            if there is none.
        local_port: the proxy's end of the connection to the service, which the service sees as the client's.
        how: of a request that was abandoned or broken, how that was seen.
    """

    number: int
    connection: int
    sequence: int
    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]
    body: ReportBody
    status: int | None
    grpc: GrpcStatus | None
    answer_headers: list[tuple[str, str]]
    answer_body: ReportBody
    began_wall_ns: int
    began_mono_ns: int
    answered_mono_ns: int | None
    ended_mono_ns: int | None
    ended: ExchangeEnd
    how: str | None
    client: str | None
    local_port: int | None


def masked_exchange(exchange: Exchange, mask: Mask) -> Proxied:
    """From the recording.

    Raises:
        RecordingError: bytes of a body are not there any more, or are damaged.
    """
    line = exchange.request_head.lstrip(b"\r\n").split(b"\n", 1)[0].split()
    request_body, answer_body = exchange.request_body(), exchange.answer_body()
    # Headers first: a secret that stands in one is then known in bodies, too.
    headers = mask.headers(exchange.request_headers)
    answer_headers = mask.headers(
        (
            *exchange.answer_headers,
            *((a.encode("latin-1"), b.encode("latin-1")) for a, b in exchange.answer_trailers),
        )
    )
    return Proxied(
        number=exchange.number,
        connection=exchange.connection,
        sequence=exchange.started_seq,
        method=exchange.method,
        target=mask.target(exchange.target),
        version=line[2].decode("latin-1") if len(line) >= _VERSION_WORDS else "HTTP/1.1",
        headers=headers,
        body=_body(request_body, headers, exchange.request_cut, mask),
        status=exchange.status,
        grpc=exchange.grpc,
        answer_headers=answer_headers,
        answer_body=_body(answer_body, answer_headers, exchange.answer_cut, mask),
        began_wall_ns=exchange.started_wall_ns,
        began_mono_ns=exchange.started_mono_ns,
        answered_mono_ns=exchange.answer_mono_ns,
        ended_mono_ns=exchange.ended_mono_ns,
        ended=exchange.ended,
        how=exchange.how,
        client=exchange.client,
        local_port=exchange.local_port,
    )


def _body(data: bytes, headers: list[tuple[str, str]], cut: int, mask: Mask) -> ReportBody:
    plain = decoded(data, coding_of(headers))
    if plain is None:  # what is in it cannot be masked, and so is not shown
        return ReportBody.of(b"", size=len(data) + cut)
    masked = mask.body(plain, dict(headers).get("content-type", ""))
    return ReportBody.of(masked, size=len(masked) + cut if cut else None)
