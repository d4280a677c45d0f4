"""Bodies of calls and answers: short ones in the event, long ones in files beside the ring, the longest cut.

A body file is named ``PID-N.body`` and holds the bytes, scrubbed; the event's fields say ``{"file": NAME, "bytes": LENGTH}``.
The agent moves it into the recording with the event.
"""

import itertools
import os
from typing import Any, Dict, Tuple

from relive_recorder.recorder import recorder
from relive_recorder.values import pack

__all__ = ["describe", "for_event"]

_numbers = itertools.count(1)


def for_event(body: bytes) -> Tuple[Dict[str, Any], bytes]:
    """What goes into an event: fields about the body, and the bytes to keep in the event itself.

    Fields: ``bytes`` (int, of the whole body); ``file`` (str) where it lies in a file; ``cut`` (int, bytes that are missing at
    the end) and ``blake2b`` (hex, 16 bytes, of the whole) when not all was kept.

    Raises:
        OSError: the file cannot be written.
    """
    options = recorder.options
    fields: Dict[str, Any] = {"bytes": len(body)}
    kept = body
    if len(body) > options.body_bytes:
        kept = body[: options.body_bytes]
        fields.update(cut=len(body) - len(kept), blake2b=_digest(body))
    kept = recorder.scrubber.data(kept)
    if len(kept) <= options.inline_bytes:
        return fields, kept
    name = f"{os.getpid()}-{next(_numbers)}.body"
    with open(f"{options.rings}/{name}", "xb") as file:
        file.write(kept)
    fields["file"] = name
    return fields, b""


def describe(body: bytes) -> Any:
    """What was sent along, for ``asked``: a packed value when it is short, else its length and digest."""
    if len(body) <= recorder.options.inline_bytes:
        return recorder.scrubber.packed(_text_or_bytes(body))
    return {"bytes": len(body), "blake2b": _digest(body)}


def _text_or_bytes(body: bytes) -> Any:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return pack(body)


def _digest(body: bytes) -> str:
    from _blake2 import blake2b  # hashlib brings OpenSSL with it, which takes milliseconds

    return blake2b(body, digest_size=16).hexdigest()
