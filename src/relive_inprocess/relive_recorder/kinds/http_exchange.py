"""One HTTP call, whichever library makes it: what is asked, what came back, and the one event about it.

Event ``http-call`` (``s3-call`` where the request is one of the S3 protocol, see ``s3``); ``asked`` holds

    method   such as "GET"
    url      scheme, host, port where it is not the usual one, path, query
    headers  dict of lower-case name to value: those the service chose
    body     see ``bodies.describe``; {"stream": TYPE} where the library sends it from something that was not read here

and beside it: ``answer`` ({"status", "reason", "headers": pairs in their order}), ``error`` with ``stage`` ("connect", "send",
"answer", "body": how far the call had come), ``ns`` until the head of the answer was there, ``body_ns`` from there until the
body's end, ``whole`` (False when the body was not read to its end), ``volatile`` (dict: headers that are not matched, since
they differ from call to call), ``pieces`` (sizes in bytes, where the body came in several), and what ``bodies.for_event`` says. Its
data is the body as it came over the network, chunk framing removed, content encoding kept unless ``decoded`` says otherwise.
"""

import sys
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from relive_recorder import bodies
from relive_recorder.calls import Channel, KeptAnswer, NoAnswer, describe_error
from relive_recorder.guard import attempt
from relive_recorder.kinds import s3
from relive_recorder.kinds.headers import VOLATILE
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.servers.handling import before_end
from relive_recorder.values import NotKept, unpack
from relive_recorder.wire import CollectedBody

__all__ = ["HttpExchange", "asked_of", "patience", "report_unread", "until_cancelled", "was_cancelled"]

_mono = time.monotonic_ns
# Of whose errors the text may be asked: their __str__ is known.
_HARMLESS = frozenset(
    ("builtins", "socket", "ssl", "http", "urllib3", "httpcore", "aiohttp", "asyncio", "botocore")
)


class _HttpChannel(Channel):
    kind = "http-call"


class _S3Channel(Channel):
    kind = "s3-call"


_HTTP, _S3 = _HttpChannel(), _S3Channel()
_LEAST_PATIENCE, _SLOWER = 1.0, 3.0  # [s], and times what it had taken
_unread: "Dict[int, List[HttpExchange]]" = {}  # by request: answers of which it has the head


def asked_of(
    method: str, url: str, headers: Iterable[Tuple[str, str]], body: Any
) -> Tuple[Channel, Dict[str, Any], Dict[str, Any]]:
    """(channel, asked, volatile headers) of a request; all scrubbed."""
    scrubber = recorder.scrubber
    chosen: Dict[str, str] = {}
    volatile: Dict[str, str] = {}
    for name, value in headers:
        low = name.lower()
        into = volatile if low in VOLATILE else chosen
        kept = scrubber.header(low, value)
        into[low] = f"{into[low]}, {kept}" if low in into else kept
    operation = s3.operation_of(method, url, chosen)
    asked: Dict[str, Any] = {"method": method, "url": scrubber.text(url)}
    if operation is not None:
        for name in ("authorization", "x-amz-security-token"):  # a signature differs with each second
            if name in chosen:
                volatile[name] = chosen.pop(name)
        asked = {**operation, **asked}
    asked["headers"] = dict(sorted(chosen.items()))
    asked["body"] = body
    return (_HTTP if operation is None else _S3), asked, volatile


class HttpExchange:
    """A call from its beginning to the end of its answer's body; it becomes one event, once.

    Not for two threads at once. Its methods are called under ``guard.attempt``: they may raise.
    """

    __slots__ = (
        "_about",
        "_answer",
        "_began",
        "_body",
        "_done",
        "_headed",
        "_kept",
        "_more",
        "_request",
        "is_played",
    )

    def __init__(self, is_played: bool = False) -> None:
        from relive_recorder import context

        self._began = _mono()
        self._headed = 0
        self._about: Optional[Tuple[Channel, Dict[str, Any], Dict[str, Any]]] = None
        self._answer: Optional[Dict[str, Any]] = None
        self._body = CollectedBody(recorder.options.body_bytes)
        self._more: Dict[str, Any] = {}
        self._kept: Optional[KeptAnswer] = None
        self._request = context.here().number
        self._done = False
        self.is_played = is_played

    @property
    def is_done(self) -> bool:
        return self._done

    @property
    def asked(self) -> Dict[str, Any]:
        assert self._about is not None
        return self._about[1]

    def asks(self, method: str, url: str, headers: Iterable[Tuple[str, str]], body: Any) -> None:
        """What is asked, when all of it is known."""
        self._about = asked_of(method, url, headers, body)

    def find(self) -> Optional[KeptAnswer]:
        """In a replay: the recorded answer to it; see ``Channel.find``."""
        assert self._about is not None
        kept = self._about[0].find(self._about[1])
        self._kept = kept
        self.is_played = kept is not None
        return kept

    def answered(self, status: int, reason: str, headers: Iterable[Tuple[str, str]], **more: Any) -> None:
        """The head of the answer is there."""
        self._headed = _mono()
        self._answer = {
            "status": status,
            "reason": reason,
            "headers": [[name, value] for name, value in headers],
        }
        self._more.update(more)
        if self._request:
            _unread.setdefault(self._request, []).append(self)

    @property
    def length(self) -> int:
        """Bytes of the body so far."""
        return self._body.length

    def got(self, data: bytes) -> None:
        """The next bytes of the body."""
        self._body.add(data)

    def failed(self, error: BaseException, stage: str) -> None:
        """It ended with an error. Does nothing when it has ended before."""
        if self._done:
            return
        self._more["stage"] = stage
        self._more["whole"] = False
        described = describe_error(error)
        kind = type(error)
        if kind.__module__.partition(".")[0] in _HARMLESS:
            described["text"] = recorder.scrubber.text(str(error))
        if isinstance(error, OSError):
            described["errno"] = error.errno if type(error.errno) is int else None
            described["strerror"] = error.strerror if type(error.strerror) is str else None
        self._emit(described)

    def ended(self, whole: bool = True) -> None:
        """The body was read to its end, or (not ``whole``) was closed before. Does nothing when it has ended before."""
        if self._done or self._answer is None:
            return
        if not whole:
            self._more["whole"] = False
        self._emit(None)

    def _emit(self, error: Optional[Dict[str, Any]]) -> None:
        self._done = True
        if self._about is None or recorder.mode() not in (RECORD, REPLAY):
            return
        channel, asked, volatile = self._about
        now = _mono()
        fields: Dict[str, Any] = {
            "asked": asked,
            "volatile": volatile,
            "ns": (self._headed or now) - self._began,
        }
        data = b""
        if self._answer is not None:
            more, data = self._scrubbed_body(self._answer["headers"])
            named = recorder.scrubber.header
            self._answer["headers"] = [[name, named(name, value)] for name, value in self._answer["headers"]]
            if len(self._body.sizes) > 1:
                fields["pieces"] = self._body.sizes
            fields.update(more, answer=self._answer, body_ns=now - self._headed)
            self._as_kept(fields)
        if error is not None:
            fields["error"] = error
        if self.is_played:
            fields["played"] = True
        fields.update(self._more)
        recorder.emit(channel.kind, fields, data, self._request)

    def _scrubbed_body(self, headers: List[List[str]]) -> Tuple[Dict[str, Any], bytes]:
        held, length = self._body.held(), self._body.length
        if held and not self._more.get("decoded"):
            encoding = [value.lower() for name, value in headers if name.lower() == "content-encoding"]
            held = _scrub_encoded(held, encoding[0]) if encoding else held
        digest = self._body.digest()
        fields, data = bodies.for_event(held)
        if digest is not None:
            fields.update(bytes=length, cut=length - recorder.options.body_bytes, blake2b=digest)
        return fields, data

    def _as_kept(self, fields: Dict[str, Any]) -> None:
        """An answer that was given whole from the recording was as long as it tells: secrets were no placeholders yet."""
        kept = self._kept
        if kept is None or self._body.length != len(kept.data):
            return
        for name in ("answer", "bytes"):
            if name in kept.fields and name in fields:
                fields[name] = kept.fields[name]


def _scrub_encoded(body: bytes, encoding: str) -> bytes:
    """A compressed body; packed anew, and so of another length, only if there was a secret in it."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return body
    import zlib

    window = 15 if encoding == "deflate" else 31
    try:
        unpacker = zlib.decompressobj(window)
        plain = unpacker.decompress(body, recorder.options.body_bytes)
    except zlib.error:
        return body
    scrubbed = recorder.scrubber.data(plain)
    if scrubbed == plain:
        return body
    packer = zlib.compressobj(wbits=window)
    return packer.compress(scrubbed) + packer.flush()


def error_of(kept: KeptAnswer, **attributes: Any) -> BaseException:
    """The recorded error again, with the attributes its class sets itself (such as ``conn``).

    Its ``__init__`` is not called: those of the libraries want other arguments than instances remember.
    """
    described = kept.fields["error"]
    module, _, name = str(described.get("type", "")).rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    text = str(described.get("text", described.get("args")))
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return NoAnswer(f"{described.get('type')}: {text}")
    try:
        args = unpack(described.get("args"))
    except NotKept:
        known = described.get("errno") is not None and issubclass(kind, OSError)
        args = (described["errno"], described["strerror"]) if known else (text,)
    try:
        error: BaseException = kind.__new__(kind, *args)
        if issubclass(kind, OSError):
            # Sets errno and strerror where the class has an __init__ of its own.
            OSError.__init__(error, *args)
        error.args = args
    except Exception:
        return NoAnswer(f"{described.get('type')}: {text}")
    for attribute, value in attributes.items():
        try:
            setattr(error, attribute, value)
        except AttributeError:  # of another version of the library, and made from something else there
            pass
    return error


def answer_of(kept: KeptAnswer) -> Tuple[int, str, List[Tuple[str, str]]]:
    """(status, reason, headers) of a recorded answer; may raise KeyError, TypeError, ValueError."""
    answer = kept.fields["answer"]
    return (
        int(answer["status"]),
        str(answer["reason"]),
        [(str(name), str(value)) for name, value in answer["headers"]],
    )


def described(body: CollectedBody) -> Any:
    """A request's body, for ``asked``."""
    if body.digest() is not None:
        return {"bytes": body.length, "blake2b": body.digest()}
    return bodies.describe(body.held())


def report_unread(request: int) -> None:
    """A request's handler ends: answers whose bodies it never read are told of now.

    Who keeps such an answer for ever, and its connection with it, is about to run out of connections; that the call had an
    answer must be known by then.
    """
    for exchange in _unread.pop(request, ()):
        if not exchange.is_done and not exchange.length:
            attempt(exchange.ended, False)


before_end.append((_unread, report_unread))


def was_cancelled(kept: KeptAnswer) -> bool:
    """The service itself gave the call up, by a time-out of its own or by cancelling the task."""
    return str(kept.fields.get("error", {}).get("type")).rpartition(".")[2] == "CancelledError"


def patience(kept: KeptAnswer) -> float:
    """Seconds to wait for the service to give a call up again that it had given up; more than it took then."""
    took = kept.fields.get("ns", 0) + kept.fields.get("body_ns", 0)
    return _LEAST_PATIENCE + _SLOWER * float(took) / 1e9


async def until_cancelled(kept: KeptAnswer) -> None:
    """Give no answer, so that whoever had cancelled the call does it again; a cancellation after ``patience`` if nobody does."""
    import asyncio

    await asyncio.sleep(patience(kept))
    raise asyncio.CancelledError


def forget(exchange: Optional[HttpExchange], whole: bool = False) -> None:
    """As ``ended``, for whoever lets go of it without knowing."""
    if exchange is not None and not exchange.is_done:
        attempt(exchange.ended, whole)
