"""One request while it is handled: its events, its body as it comes in, its answer as it goes out.

``handling-started`` is written before the service sees anything of it, ``handling-body`` when the body has been read, or as
far as it was when something failed, ``handling-ended`` when the answer is whole. Bodies are held as the very bytes objects
that the server made, up to ``options.body_bytes``; of a long answer the beginning is held, since what compares answers has
them from the border.
"""

import itertools
import json
import time
from contextvars import Token
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from relive_recorder import bodies, context, quick
from relive_recorder.failure import waiting
from relive_recorder.failure.moment import seen
from relive_recorder.guard import attempt
from relive_recorder.recorder import FREE, OFF, RECORD, REPLAY, encode, recorder

__all__ = [
    "Handling",
    "Raw",
    "are_pairs",
    "before_end",
    "begin",
    "describe",
    "handle_in_c",
    "scrubbed",
    "scrubbed_raw",
    "target_of",
    "write_start",
]

Pairs = List[List[str]]
Raw = Iterable[Tuple[bytes, bytes]]
_mono = time.monotonic_ns
_INTEGERS = frozenset((int,))
_quoted = json.encoder.encode_basestring_ascii
_REMEMBERED = 2048  # [characters] as JSON; more headers than that are not remembered


# (what is known of requests, by their numbers; called with the number of one that ends, before the event of its end is written,
# unless nothing is known of any).
before_end: List[Tuple[Dict[int, Any], Callable[[int], None]]] = []


def scrubbed(headers: Iterable[Tuple[str, str]]) -> Pairs:
    """Header pairs without secrets."""
    header = recorder.scrubber.header
    return [[name, header(name, value)] for name, value in headers]


def scrubbed_raw(headers: Iterable[Tuple[Any, Any]]) -> Tuple[Pairs, str]:
    """Header pairs, as ASGI has them (bytes) or as text, without secrets; and the same as JSON. Most requests of a client, and most
    answers, have the same ones as the last: they are remembered as a whole, so nobody may change what is returned.
    """
    made = recorder.scrubber.made()
    given = tuple([(_plain(name), _plain(value)) for name, value in headers])
    key = "headers", given
    known: Optional[Tuple[Pairs, str]] = made.get(key)
    if known is None:
        texts = [(_text(name), _text(value)) for name, value in given]
        pairs = scrubbed(texts)
        # A secret was learned of them, which may stand in one before it.
        if recorder.scrubber.made() is not made:
            made = recorder.scrubber.made()
            pairs = scrubbed(texts)
        known = pairs, encode(pairs)
        if len(known[1]) < _REMEMBERED:
            made[key] = known
    return known


def _plain(part: Any) -> Any:
    return str(part) if isinstance(part, str) else bytes(part)


def _text(part: Any) -> str:
    return part if type(part) is str else part.decode("latin-1")


class _Kept:
    """A body in pieces, of which as much is held as options allow."""

    __slots__ = ("bytes", "held", "pieces")

    def __init__(self) -> None:
        self.pieces: List[bytes] = []
        self.held = 0
        self.bytes = 0

    def add(self, piece: bytes) -> None:
        self.bytes += len(piece)
        room = recorder.options.body_bytes - self.held
        if room > 0 and piece:
            # One byte more than is kept, so that ``bodies`` sees that something was cut.
            self.pieces.append(piece if len(piece) <= room else piece[: room + 1])
            self.held += len(self.pieces[-1])

    def whole(self) -> bytes:
        if len(self.pieces) > 1:
            self.pieces[:] = [b"".join(self.pieces)]
        return self.pieces[0] if self.pieces else b""


class Handling(context.Request):
    """A request that a server handles, made by ``begin``: from then on that of the running context. In whatever threads it runs.

    Once ended, it refers neither to itself nor to its context. Else each request were a cycle: all that it has to do with would lie
    in memory until the service's garbage is collected, and its successors elsewhere.

    Attributes:
        status, headers: of the answer; set by the server's hook when they are known.
        raw_headers: set instead of ``headers`` where they are not scrubbed yet: pairs of bytes, or of str.
        routed: a mapping that will have ``path_params`` once a router has found its way (an ASGI scope); or None.
        at_rest: true while none of its code runs, since the server has its answer and asks for no piece of it just now. In C it is
            who knows the answer by then.
    """

    # What all requests set. ``_token`` is None once it has ended.
    __slots__ = ("__dict__", "__weakref__", "_began", "_token", "at_rest", "routed")
    # What most requests never set: of those the dictionary is empty, by which the part in C knows them.
    status: Optional[int] = None
    headers: Sequence[Sequence[str]] = ()
    raw_headers: Optional[Tuple[Any, ...]] = None
    _body: Optional[_Kept] = None
    _answer: Optional[bodies.CountedBody] = None
    _sole = b""  # the answer as long as it is in one piece
    _encoded_body = 0
    _error: Optional[Dict[str, str]] = None
    _more: Optional[Dict[str, Any]] = None

    def __init__(self, number: int, about: Union[Dict[str, Any], Tuple[Any, ...]]) -> None:
        self.number = number
        self._about = about
        self.lanes = itertools.count(1)
        self.store = {}
        self._began = _mono()
        self.routed: Any = None
        self.at_rest: Any = False
        self._token: Optional["Token[context.Request]"] = context.begin(self)

    @property
    def handling(self) -> "Handling":
        """It is one."""
        return self

    # -- what comes in -------------------------------------------------------------------------------------------

    def received(self, piece: bytes, *, is_last: bool) -> None:
        """A piece of the body has been read; of an empty body nothing is told."""
        if piece:
            if self._body is None:
                self._body = _Kept()
            self._body.add(piece)
        if is_last:
            self._record_body()

    @property
    def has_body(self) -> bool:
        """A piece of it has been read."""
        return self._body is not None

    def _record_body(self) -> None:
        if self._body is not None and self._body.bytes > self._encoded_body:
            self._encoded_body = self._body.bytes
            fields, data = bodies.for_event(self._body.whole())
            fields["bytes"] = self._body.bytes
            recorder.emit("handling-body", fields, data, self.number)

    def body_so_far(self) -> bytes:
        """What has been read of it, and is held."""
        return self._body.whole() if self._body is not None else b""

    def path_params(self) -> Dict[str, str]:
        """Parts of the path that the router named, as texts."""
        held = self.routed.get("path_params") if type(self.routed) is dict else None
        if type(held) is not dict:
            return {}
        named = recorder.scrubber.named
        return {
            name: named(name, str(value))
            for name, value in held.items()
            if type(name) is str and type(value) in (str, int, float)
        }

    def tell(self, name: str, value: Any) -> None:
        """Have the event of its end say that too."""
        if self._more is None:
            self._more = {}
        self._more[name] = value

    def count(self, name: str) -> None:
        """Have the event of its end say how often this was called."""
        self.tell(name, (self._more or {}).get(name, 0) + 1)

    # -- what goes out -------------------------------------------------------------------------------------------

    def sent(self, piece: bytes) -> None:
        """A piece of the answer's body was given to the server."""
        if self._answer is None:
            if not self._sole:
                self._sole = piece
                return
            self._answer = bodies.CountedBody()
            self._answer.add(self._sole)
        self._answer.add(piece)

    def failed(self, error: BaseException, where: str = "handler") -> None:
        """An exception escapes. Stands still for a commit, as policy says; call it before anything is answered."""
        attempt(self._record_body)
        if self._error is None:
            from relive_recorder.calls import describe_error

            self._error = attempt(describe_error, error)
        if isinstance(error, Exception):  # not a cancellation, a generator's end, an exit
            seen(error, where)

    @property
    def is_left(self) -> bool:
        """It has ended elsewhere, or its server has left it: then what is called in its context is another request."""
        return bool(self.at_rest) or self._token is None

    def ended(self) -> None:
        """The answer is whole, or will never be. The first call counts."""
        token, self._token = self._token, None
        if token is None:
            return
        if self._body is not None:
            attempt(self._record_body)
        for known, report in before_end:
            if known:
                report(self.number)
        writer = recorder.quick
        if (
            writer is None
            or self._more is not None
            or self._error is not None
            or self._answer is not None
            or writer.ended(self._began, self.status, self.raw_headers, self._sole, self.number) is None
        ):
            attempt(self._record_end)
        context.end(token)

    def _record_end(self) -> None:
        fields: Dict[str, Any] = {"ns": _mono() - self._began}
        if self._more is not None:
            fields.update(self._more)
        if self.status is not None:
            fields["status"] = self.status
        if self._error is not None:
            fields["error"] = self._error
        data = b""
        answer = self._answer
        if answer is None:
            answer = bodies.CountedBody()
            answer.add(self._sole)
        if answer.bytes:
            kept, data = answer.for_event()
            fields.update(kept)
        text = _fields_json(fields)
        if self.status is not None:
            raw: Any = self.raw_headers
            headers = scrubbed_raw(raw)[1] if are_pairs(raw) else encode(self.headers)
            text = f'{text[:-1]},"headers":{headers}}}'
        recorder.emit_json("handling-ended", text, data, self.number)


def begin(
    server: str, method: str, target: str, peer: List[Any], headers: Pairs, raw_headers: Any = None
) -> Optional[Handling]:
    """A request begins, in the running context; None when nothing is recorded, or this is a part of a request already.

    Args:
        headers: as ``scrubbed`` gave them; ``target`` is scrubbed here.
        raw_headers: what is not scrubbed yet, in the place of ``headers``: pairs of bytes, or of str.
    """
    mode = recorder.mode()
    if mode == OFF or context.here().number:
        return None
    if mode == FREE:
        _stop_if_asked(method, target)
        return None
    writer = recorder.quick if mode == RECORD else None
    if writer is not None and raw_headers is not None:
        number = recorder.next_request()
        handling = Handling(number, (describe, server, method, target, peer, raw_headers))
        if writer.started(server, method, target, peer, raw_headers, number) is None:
            write_start(handling, raw_headers)
        return handling
    about = describe(server, method, target, peer, raw_headers, headers)
    handling = Handling(_number(mode, about), about)
    write_start(handling, raw_headers)
    if mode != RECORD:
        _stop_if_asked(method, target)
    return handling


def write_start(handling: Handling, raw_headers: Any) -> None:
    """Write that it began, where the part in C has not. ``raw_headers``: as in ``begin``."""
    about = handling.about  # before the headers: a secret in the target may stand in them too
    text = "" if raw_headers is None else scrubbed_raw(raw_headers)[1]
    recorder.emit_json("handling-started", _about_json(about, text), b"", handling.number)


def describe(
    server: str, method: str, target: str, peer: List[Any], raw: Any, headers: Optional[Pairs] = None
) -> Dict[str, Any]:
    """What is told of a request, see ``Request.about``. ``raw``: as ``raw_headers`` in ``begin``."""
    # Before the target: a secret in them may stand there too.
    pairs = headers if raw is None else scrubbed_raw(raw)[0]
    target = recorder.scrubber.text(target)
    return {"server": server, "method": method, "target": target, "peer": peer, "headers": pairs}


def target_of(path: bytes, query: bytes) -> str:
    """As the client sent it."""
    return (path + b"?" + query if query else path).decode("latin-1")


def handle_in_c() -> bool:
    """Have the part in C, where there is one, begin and end handlings."""
    if quick.module is None:
        return False
    quick.module.requests(Handling, recorder, _describe_arrived, write_start, _escaped, before_end)
    return True


def _describe_arrived(arrived: Tuple[Any, ...]) -> Dict[str, Any]:
    """Of a request of ASGI that the part in C has written already."""
    path, query, method, client, headers = arrived
    return describe("asgi", method, target_of(path, query), list(client), headers)


def _escaped(handling: Handling, error: BaseException) -> None:
    attempt(handling.failed, error)


def _about_json(about: Dict[str, Any], headers_json: str) -> str:
    if not headers_json or type(about["method"]) is not str:
        return encode(about)
    begins = f'{{"server":"{about["server"]}","method":{_quoted(about["method"])},"target":{_quoted(about["target"])}'
    return f'{begins},"peer":{_peer_json(about["peer"])},"headers":{headers_json}}}'


def _peer_json(peer: List[Any]) -> str:
    if len(peer) == 2 and type(peer[0]) is str and type(peer[1]) is int:
        return f"[{_quoted(peer[0])},{peer[1]}]"
    return encode(peer)


def _fields_json(fields: Dict[str, Any]) -> str:
    """At an end there are mostly numbers only."""
    if _INTEGERS.issuperset(map(type, fields.values())):
        return "{%s}" % ",".join([f'"{name}":{value}' for name, value in fields.items()])
    return encode(fields)


def _number(mode: int, about: Dict[str, Any]) -> int:
    """The next one; in a replay the one that it had in the recording, as the player recognises it."""
    if mode == REPLAY:
        from relive_recorder.playing import recognise

        return recognise(about)
    return recorder.next_request()


def _stop_if_asked(method: str, target: str) -> None:
    """In a branch: open the debugger here, if this is the request that is to be looked at from its beginning."""
    attempt(waiting.stop_at_request, method, target)


def are_pairs(headers: Any) -> bool:
    """Whether headers are pairs that can be read twice: of an iterator the server would find nothing left.

    What are no pairs it will refuse.
    """
    return isinstance(headers, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in headers
    )
