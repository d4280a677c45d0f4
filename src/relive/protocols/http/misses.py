"""What a service gets for an HTTP request of which no call was recorded."""

from __future__ import annotations

import html
import json

from relive.protocols.pool import PoolMatch
from relive.recording.events import EventKind

__all__ = ["miss_answer", "miss_words"]

_LONGEST = 1000  # [characters] of the header


def miss_answer(found: PoolMatch, *, is_head: bool) -> bytes:
    """A 502 in JSON; to S3 clients a 400 in XML, since they would ask again and again after a 502."""
    words = miss_words(found)
    if found.kind is EventKind.S3_CALL:
        status, content_type = "400 Bad Request", "application/xml"
        text = f"<Error><Code>ReliveMiss</Code><Message>{html.escape(_printable(words), quote=False)}</Message></Error>"
    else:
        status, content_type = "502 Bad Gateway", "application/json"
        nearest = found.nearest.asked if found.nearest is not None else None
        said = {
            "error": "relive-miss",
            "message": words,
            "differs": list(found.differs),
            "nearest": None
            if nearest is None
            else {"method": nearest.get("method"), "url": nearest.get("url")},
        }
        text = json.dumps(said)
    body = text.encode("utf-8", "replace")
    shown = _printable(words)[:_LONGEST].encode("latin-1", "replace").decode("latin-1")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"X-Relive-Miss: {shown}\r\n\r\n"
    ).encode("latin-1")
    return head if is_head else head + body


def miss_words(found: PoolMatch) -> str:
    """What was asked, what came nearest, and how to accept what differs; one sentence each."""
    asked = f"{found.asked.get('method')} {found.asked.get('url')} was not recorded."
    if found.nearest is None:
        return f"{asked} No call of its kind was."
    nearest = found.nearest.asked
    differs = ", ".join(found.differs[:8]) + (
        f" and {len(found.differs) - 8} more" if len(found.differs) > 8 else ""
    )
    if not found.differs:
        return f"{asked} It was answered before, and a write is answered once only."
    accept = " ".join(f"--ignore '{name}'" for name in found.differs[:8])
    return f"{asked} Nearest: {nearest.get('method')} {nearest.get('url')}, which differs in {differs}. To accept that: {accept}"


def _printable(text: str) -> str:
    return "".join(one if " " <= one != "\x7f" else "?" for one in text)
