"""What makes the threads of a living Python process take turns otherwise, in a branch: another switch interval, and delays at
events that the recorder notes.

Its text is compiled in that process (``inspection.python.asking``), so it uses the standard library only and runs on CPython 3.8
to 3.14. ``answer`` takes and gives JSON.

1. A *place* names an event in every replay alike: ``PID:REQUEST:LANE:N``, the N-th one of those kinds in its lane of its request.
2. A thread that has come to a place waits there, after the event, as long as the schedule says: by its seed, or by a list.
   ``PID:REQUEST:LANE:bN`` is the place before that event, of a call that is really made (SQLite, files): behind it a statement
   may be open still, whose lock keeps just those waiting that are to come in between. By a seed it is delayed in ``within`` only.
3. Code that runs in an event loop is not delayed: all that the loop serves would wait with it, and nothing change places.
4. Each delay is noted (``note`` about "chaos", its place as text, ``ms``), before it is waited for.
"""

import hashlib
import json
import os
import sys
import threading
import time
import typing

_sleep = time.sleep


def answer(question):
    """The answer to a question, bytes of JSON; it never raises."""
    try:
        return json.dumps(_vary(json.loads(question))).encode()
    except BaseException as error:  # whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _vary(wanted):
    """``switch_interval`` (seconds or null), ``kinds``, and ``seed``, ``rate``, ``most_ms`` and ``within`` (requests, or null), or
    ``delays`` (place to ms).
    """
    if wanted["switch_interval"] is not None:
        sys.setswitchinterval(wanted["switch_interval"])
    module = sys.modules.get("relive_recorder.recorder")
    # Only now does a process find itself in a branch that has not done anything yet.
    if module is None or module.recorder.mode() != module.REPLAY:
        return {"recorded": False}
    place = sys.modules["relive_recorder.context"].place
    _Delays(module.recorder, sys.modules["relive_recorder.calls"], place, wanted).begin()
    return {"recorded": True}


def drawn(seed: int, place: str) -> "list[float]":
    """Two numbers from 0 up to 1 that hang on seed and place only; the recorder may answer what ``random`` draws."""
    digest = hashlib.blake2b("{}:{}".format(seed, place).encode(), digest_size=16).digest()
    return [int.from_bytes(half, "little") / (1 << 64) for half in (digest[:8], digest[8:])]


def delay_of(wanted: "dict[str, typing.Any]", place: str) -> float:
    """Milliseconds at a place."""
    if "delays" in wanted:
        return float(wanted["delays"].get(place, 0))
    within = wanted.get("within")
    if request_of(place) not in within if within is not None else ":b" in place:
        return 0.0
    whether, how_long = drawn(wanted["seed"], place)
    return how_long * float(wanted["most_ms"]) if whether < wanted["rate"] else 0.0


def request_of(place: str) -> str:
    """The request that a place is in: ``PID:REQUEST``, or ``request:NUMBER`` before it is sent."""
    return place if place.startswith("request:") else place.rsplit(":", 2)[0]


class _Delays:
    """Stands before ``emit`` and ``emit_json`` of the recorder, and before local calls. Any thread may come; it never raises."""

    def __init__(self, recorder, calls, place, wanted):
        self._calls, self._perform = calls, calls._watched
        self._recorder = recorder
        self._emit, self._emit_json = recorder.emit, recorder.emit_json
        self._place = place
        self._wanted = wanted
        self._kinds = frozenset(wanted["kinds"])
        self._seen = {}
        self._within = threading.local()

    def begin(self):
        self._recorder.emit, self._recorder.emit_json = self.emit, self.emit_json
        self._calls._watched = self.perform

    def emit(self, kind, fields, data=b"", request=None):
        self._within.now = True  # emit may call emit_json
        try:
            seq = self._emit(kind, fields, data, request)
        finally:
            self._within.now = False
        self._wait(kind, request)
        return seq

    def perform(self, channel, asked, perform):
        if channel.local:
            self._wait(channel.kind, None, is_before=True)
        return self._perform(channel, asked, perform)

    def emit_json(self, kind, fields, data=b"", request=None):
        seq = self._emit_json(kind, fields, data, request)
        if not getattr(self._within, "now", False):
            self._wait(kind, request)
        return seq

    def _wait(self, kind, request, is_before=False):
        try:
            if kind not in self._kinds or _is_in_a_loop():
                return
            number, lane = self._place()
            at = os.getpid(), number if request is None else request, lane
            seen = self._seen.get(at, 0) + 1
            if not is_before:
                self._seen[at] = seen
            place = ":".join(map(str, (*at, "b{}".format(seen) if is_before else seen)))
            wait = delay_of(self._wanted, place)
            if wait:
                self._emit("note", {"about": "chaos", "text": place, "ms": wait})
                _sleep(wait / 1000)
        except Exception:  # the service's own code is what runs here
            pass


def _is_in_a_loop():
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
