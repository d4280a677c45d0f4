"""An incident of a service that pays orders, as the recorder, the proxy and the agent leave it on disk."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from relive.incidents.incidents import Incidents
from relive.model.failure import ErrorPackage, read_package
from relive.model.incident import FailureKind, Incident, Sighting
from relive.recording.events import Event, EventKind
from relive.recording.writer import RecordingWriter

MS = 1_000_000  # [ns]
SECOND = 1000 * MS
WALL_NS = 1_700_000_000 * SECOND - 5 * SECOND  # 2023-11-14 22:13:15 UTC
MONO_NS = 5000 * SECOND
PID = 12
OWN_REQUEST = 3
PROXY_PORT = 40321

HOSTILE = "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>"


class Events:
    """Makes events of one process, numbered in order; times in milliseconds from the start of the request."""

    def __init__(self, request: int = OWN_REQUEST, pid: int = PID) -> None:
        self.request, self.pid = request, pid
        self.made: list[Event] = []

    def add(
        self,
        kind: EventKind,
        at: float,
        *,
        lane: int = 1,
        data: bytes = b"",
        request: int | None = None,
        **fields: Any,
    ) -> int:
        """One event, written at a time; a call's ``ns`` lies before that. Returns its number."""
        seq = 100 + len(self.made)
        at_ns = int(at * MS)
        inside = {"own_seq": seq, "thread": 7000 + lane, "lane": lane, "pid": self.pid, **fields}
        number = self.request if request is None else request
        self.made.append(Event(9000 + seq, MONO_NS + at_ns, WALL_NS + at_ns, kind, 0, number, data, inside))
        return seq


def packed(kind: str, content: Any) -> dict[str, Any]:
    return {"$": [kind, content]}


def paying() -> list[Event]:
    """A request that reads an order, its cart, the time, a rate that times out, and fails."""
    events = Events()
    add = events.add
    add(
        EventKind.HANDLING_STARTED,
        1,
        server="asgi",
        method="POST",
        target="/pay?token=<secret:0a0b0c0d>",
        peer=["127.0.0.1", PROXY_PORT],
        headers=[["host", "shop"], ["authorization", "<secret:11111111>"]],
    )
    add(EventKind.HANDLING_BODY, 1.05, bytes=13, data=b'{"order": 17}')
    for at in (1.1, 1.2, 1.3, 1.4):
        add(EventKind.CLOCK, at, source="time.time", value=1700000000.25 + at)
    query = add(
        EventKind.QUERY,
        4,
        ns=2 * MS,
        asked={
            "system": "sqlite",
            "database": "orders.db",
            "statement": "SELECT id, customer, currency,\n  amount FROM orders WHERE id = ?",
            "parameters": [17],
        },
        answer={"columns": ["id", "customer", "currency", "amount"], "rowcount": -1},
    )
    row = [17, "Ada", "EUR", packed("decimal", "9.90")]
    add(EventKind.ROWS, 4.1, query=query, rows=[row, row, row])
    add(
        EventKind.REDIS_COMMAND,
        5,
        ns=MS // 2,
        asked={"server": "cache:6379", "database": 2, "command": ["GET", "cart:17"]},
        answer=packed("bytes", base64.b64encode(b"2 books").decode()),
    )
    add(
        EventKind.HTTP_CALL,
        9,
        lane=2,
        ns=3 * MS,
        body_ns=MS,
        asked={
            "method": "GET",
            "url": "http://rates:8080/EUR?day=1",
            "headers": {"accept": "application/json"},
            "body": "",
        },
        volatile={"user-agent": "httpx"},
        answer={"status": 503, "reason": "Service Unavailable", "headers": [["content-type", "text/plain"]]},
        bytes=8,
        data=b"too busy",
    )
    add(
        EventKind.HTTP_CALL,
        20,
        ns=10 * MS,
        asked={"method": "GET", "url": "http://rates:8080/EUR?day=2", "headers": {}, "body": ""},
        error={"type": "builtins.TimeoutError", "args": packed("tuple", ["timed out"]), "text": "timed out"},
    )
    add(EventKind.LOG_RECORD, 21, logger="pay", level="ERROR", text="no rate for EUR", where="pay.py:40")
    add(EventKind.CLOCK, 21.5, lane=9, request=0, source="time.monotonic", value=3.5)
    add(
        EventKind.FAILURE,
        22,
        type="builtins.KeyError",
        text="'EUR'",
        fingerprint="0123456789abcdef",
        where="handler",
        data=package_json(),
    )
    add(
        EventKind.HANDLING_ENDED,
        23,
        status=500,
        headers=[["content-type", "text/plain"]],
        data=b"Internal Server Error",
    )
    return events.made


def package_json(**parts: Any) -> bytes:
    """The error package of it; ``parts`` replace what it says."""
    library = {
        "file": "/usr/lib/python3/site-packages/starlette/routing.py",
        "line": 73,
        "function": "app",
        "module": "starlette.routing",
        "own": False,
        "source": {"first": 72, "lines": ["async def app(scope):", "    await handle(scope)"]},
        "locals": {"scope": "{…}"},
        "locals_cut": 0,
    }
    handler = {
        "file": "/srv/shop/pay.py",
        "line": 20,
        "function": "pay",
        "module": "pay",
        "own": True,
        "source": {
            "first": 19,
            "lines": ["def pay(order):", "    price = in_euro(order)", "    return price"],
        },
        "locals": {"order": "Order(id=17, currency='EUR')", "key": "<secret:0a0b0c0d>"},
        "locals_cut": 2,
    }
    failing = {
        "file": "/srv/shop/rates.py",
        "line": 41,
        "function": "in_euro",
        "module": "rates",
        "own": True,
        "source": {
            "first": 40,
            "lines": ["def in_euro(order):", "    return RATES[order.currency] * order.amount"],
        },
        "locals": {"order": "Order(id=17, currency='EUR')", "note": HOSTILE},
        "locals_cut": 0,
    }
    cause = {"type": "builtins.TimeoutError", "text": "timed out", "relation": "context", "frames": [handler]}
    whole = {
        "version": 1,
        "type": "builtins.KeyError",
        "text": "'EUR'",
        "fingerprint": "0123456789abcdef",
        "where": "handler",
        "wall_ns": WALL_NS + 22 * MS,
        "mono_ns": MONO_NS + 22 * MS,
        "pid": PID,
        "thread": "MainThread",
        "lane": 1,
        "request": {
            "number": OWN_REQUEST,
            "server": "asgi",
            "method": "POST",
            "target": "/pay?token=<secret:0a0b0c0d>",
            "peer": ["127.0.0.1", PROXY_PORT],
            "headers": [["host", "shop"]],
            "query": {},
            "path_params": {},
            "body": '{"order": 17}',
            "body_cut": 0,
        },
        "chain": [
            {
                "type": "builtins.KeyError",
                "text": "'EUR'",
                "relation": None,
                "frames": [library, handler, failing],
            },
            cause,
        ],
        "environment": {"HOME": "/srv", "API_KEY": "<secret:22222222>"},
        "versions": {"python": "3.11.7", "packages": {"starlette": "0.41"}},
        "revision": {"commit": "a" * 40, "dirty": True, "root": "/srv/shop"},
        "argv": ["uvicorn", "pay:app"],
        "cwd": "/srv/shop",
        "cut": ["2 locals of pay"],
    }
    return json.dumps(whole | parts).encode()


def package(**parts: Any) -> ErrorPackage:
    return read_package(package_json(**parts))


def as_line(event: Event) -> str:
    """An event as it lies beside its incident."""
    line: dict[str, Any] = {
        "seq": event.seq,
        "mono_ns": event.mono_ns,
        "wall_ns": event.wall_ns,
        "kind": event.kind.value,
        "request": event.request,
        "fields": dict(event.fields),
    }
    if event.data:
        line["data"] = base64.b64encode(event.data).decode()
    return json.dumps(line)


def sighting(**parts: Any) -> Sighting:
    return Sighting(
        **{
            "kind": FailureKind.ANSWER,
            "fingerprint": "answer 500 POST /pay",
            "summary": "request 7 (POST /pay) was answered with status 500",
            "seen_wall_ns": WALL_NS + 24 * MS,
            "request": 7,
        }
        | parts
    )


def add_incident(home: Path, **parts: Any) -> Incident:
    """An incident in a home, with nothing beside it."""
    return Incidents(home / "incidents").add(
        "pay", "L1", sighting(**parts), before=None, at=None, log_end=None, log_tail=[]
    )


def keep_beside(home: Path, number: int, package_: bytes | None, events: list[Event]) -> None:
    """What the agent writes beside an incident."""
    directory = home / "incidents"
    directory.mkdir(parents=True, exist_ok=True)
    if package_ is not None:
        (directory / f"{number}.package.json").write_bytes(package_)
    (directory / f"{number}.events.jsonl").write_text("".join(f"{as_line(event)}\n" for event in events))


REQUEST_HEAD = (
    b"POST /pay?token=hunter2222&x=1 HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer abcdefgh\r\n"
    b"Cookie: sid=12345678\r\nContent-Type: application/json\r\nContent-Length: 44\r\n"
    b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"
)
REQUEST_BODY = b'{"order": 17, "password": "correct horse 1"}'
ANSWER_HEAD = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\r\n"


def record_by_proxy(home: Path, *, number: int = 7) -> None:
    """The proxy's recording of the request's life: an exchange around ``paying``, and one of another client."""
    directory = home / "capsules" / "pay" / "L1" / "recording"
    directory.mkdir(parents=True)
    writer = RecordingWriter(directory, keep_bytes=1 << 20)

    def at(milliseconds: float) -> tuple[int, int]:
        return MONO_NS + int(milliseconds * MS), WALL_NS + int(milliseconds * MS)

    other = REQUEST_HEAD.replace(b"x=1", b"x=2")
    writer.append(EventKind.REQUEST_STARTED, 1, number - 1, other, {"local_port": 999}, at=at(-0.5))
    writer.append(
        EventKind.REQUEST_STARTED,
        2,
        number,
        REQUEST_HEAD,
        {"client": "10.0.0.9:5555", "local_port": PROXY_PORT},
        at=at(0),
    )
    writer.append(EventKind.REQUEST_BODY, 2, number, REQUEST_BODY, {}, at=at(0.1))
    writer.append(EventKind.REQUEST_ENDED, 2, number, b"", {"bytes": len(REQUEST_BODY)}, at=at(0.2))
    writer.append(EventKind.COMMIT_TAKEN, 0, 0, b"", {"commit": "c0ffee" * 10, "cursor": 3}, at=at(6))
    writer.append(EventKind.ANSWER_STARTED, 2, number, ANSWER_HEAD, {"status": 500}, at=at(24))
    writer.append(EventKind.ANSWER_BODY, 2, number, b"Internal Server Error", {}, at=at(24.1))
    writer.append(EventKind.ANSWER_ENDED, 2, number, b"", {"bytes": 21}, at=at(24.5))
    writer.close()
