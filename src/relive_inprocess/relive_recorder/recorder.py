"""The recorder of this process: its mode, its ring, and how an event gets there.

``emit`` may be called by any thread, in a signal handler and while garbage is collected, and never waits: an event is put
into a queue, and whoever finds nobody at work writes all that is queued.
"""

import collections
import itertools
import json
import os
import sys
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from relive_recorder import context
from relive_recorder.ring import EPOCH, FAULT, MODE, PID, Ring
from relive_recorder.scrub import Scrubber

__all__ = ["FREE", "OFF", "RECORD", "REPLAY", "Recorder", "encode", "mono", "recorder"]

# Modes, as numbers of the ring's header.
OFF = 0  # nothing is recorded (any more)
RECORD = 1  # the original: everything goes on as ever, and is recorded
# A branch: calls are answered from a recording; what happens is recorded into the branch's own ring.
REPLAY = 2
FREE = 3  # a branch that runs freely: calls go out (and find a sealed network), nothing is recorded

mono = time.monotonic_ns  # the real one, also when ``kinds/clock.py`` has changed the module
_wall = time.time_ns
_ident = threading.get_ident
_place = context.place


def _encoder() -> Callable[[Any], str]:
    """JSON in one line. ``JSONEncoder.encode`` makes its C part anew at each call, which takes longer than the encoding."""
    slow = json.JSONEncoder(separators=(",", ":"), check_circular=False)
    made: Any = getattr(json.encoder, "c_make_encoder", None)
    try:
        fast = made(
            None, slow.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
        )
        if "".join(fast({"a": [1.5, "\u00e9"]}, 0)) == slow.encode({"a": [1.5, "\u00e9"]}):
            return lambda value: "".join(fast(value, 0))
    except TypeError:  # a Python without that part, or of which it wants something else
        pass
    return slow.encode


encode = _encoder()  # of plain values, without asking whether they hold themselves


class Recorder:
    """One per process; ``recorder`` is it. Off until ``start``.

    Attributes:
        options: what Relive asked for, see ``options``.
        scrubber: takes secrets out of texts.
        quick: the writer in C (see ``quick``), which other files hand their most frequent events to; None without it, and while
            nothing is recorded. What it returns None for, they do themselves.
        on_brought_back: called once, with the mode, when this process finds itself in a branch; its other threads wait
            until it returns.
        on_late: called in a replay with kind and fields of an event that came about before the commit, but was not yet written.
        before_fork: called in a replay, in the process that forks.
        on_forked: called in a replay, in the process that was forked, before it records anything.
    """

    # What is asked for at each request and each event: the part in C finds it there (see fields.h).
    __slots__ = ("__dict__", "quick", "requests")

    def __init__(self) -> None:
        self.options: Any = None
        self.scrubber = Scrubber()
        self.quick: Any = None
        self._quick_kind: Any = None
        self._seq = 0
        self._numbers = itertools.count(1)  # counts for all threads without a lock
        self.requests = 0
        self.on_brought_back: Callable[[int], None] = lambda _mode: None
        self.on_late: Callable[[str, Dict[str, Any]], None] = lambda _kind, _fields: None
        self.before_fork: Callable[[], None] = lambda: None
        self.on_forked: Callable[[], None] = lambda: None
        self._ring: Optional[Ring] = None
        self._queue: Deque[Tuple[int, bytes, bytes]] = collections.deque()
        self._writing = threading.Lock()
        self._finding = threading.RLock()
        self._is_finding = False

    def start(self, options: Any, mode: int = RECORD, *, quick_kind: Any = None) -> None:
        """Make the ring and begin. ``quick_kind``: the class of the writer in C, where there is one.

        Raises:
            OSError: the ring cannot be made.
        """
        self.options = options
        self._quick_kind = quick_kind
        self._ring = self._new_ring(mode)
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def _new_ring(self, mode: int) -> Ring:
        path = f"{self.options.rings}/{os.getpid()}-{time.monotonic_ns():x}.ring"
        ring = Ring(
            path, self.options.ring_bytes, mode, self._make_quick if self._quick_kind is not None else None
        )
        self.quick = ring.quick
        return ring

    def _make_quick(self, fd: int, capacity: int, epoch: int) -> Any:
        # What is shorter as JSON than a quarter is so by the measures of ``query`` and ``redis`` too, which are rough.
        most = min(self.options.inline_bytes, self.options.body_bytes) // 4
        return self._quick_kind(fd, capacity, epoch, self.seq, most, self.scrubber, *context.for_quick())

    def _before_fork(self) -> None:
        if self.mode() == REPLAY:
            try:
                self.before_fork()
            except BaseException as fault:
                self.switch_off(fault)

    def _after_fork(self) -> None:
        ring, self._ring = self._ring, None
        self._seq, self.quick = self.seq, None
        self._queue.clear()
        self._writing = threading.Lock()
        self._finding = threading.RLock()
        if ring is None:
            return
        try:
            parent = ring.words[PID]
            mode = ring.words[MODE]
            ring.forget()
            if mode not in (RECORD, REPLAY):
                return
            if mode == REPLAY:
                self.on_forked()
            self._ring = self._new_ring(mode)
            self.emit("process-started", {"forked_from": parent, "argv": self.arguments()})
        except BaseException as fault:
            self.switch_off(fault)

    def arguments(self) -> List[str]:
        """The program's, scrubbed; of very many the first."""
        return self.scrubber.words(list(sys.argv)[:64])

    # -- the mode ------------------------------------------------------------------------------------------------

    def mode(self) -> int:
        """What to do now; notices that this process was brought back in a branch."""
        ring = self._ring
        if ring is None:
            return OFF
        words = ring.words
        if words[EPOCH] != ring.epoch:
            self._find_ourselves_in_a_branch(ring)
        return words[MODE]

    def _find_ourselves_in_a_branch(self, ring: Ring) -> None:
        # A lock is waited for only here, in a branch: nobody may ask the player for anything before it knows the answers.
        with self._finding:
            if self._is_finding or ring.words[EPOCH] == ring.epoch:
                return
            self._is_finding = True  # a signal handler of this very thread goes on without
            try:
                self.on_brought_back(ring.words[MODE])
            except BaseException as fault:
                self.switch_off(fault)
            finally:
                ring.adopt()
                self._is_finding = False

    @property
    def epoch(self) -> int:
        """Names the file that is written to; another one after this process was brought back. 0 while off."""
        return self._ring.epoch if self._ring is not None else 0

    def switch_off(self, fault: BaseException) -> None:
        """Stop recording for good, with one line in standard error; never raises."""
        ring, self._ring = self._ring, None
        self._seq, self.quick = self.seq, None
        if ring is None:
            return
        try:
            ring.words[FAULT] = 1
            ring.words[MODE] = OFF
            where = fault.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = f" at {where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where is not None else ""
            said = f"{type(fault).__name__}: {self.scrubber.text(str(fault))}"
            text = f"relive: recorder switched off in process {os.getpid()}: {said}{place}\n"
            os.write(2, text.encode("utf-8", "replace"))
        except BaseException:  # there is nobody left to tell
            pass

    # -- events --------------------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Number of the last event of this process."""
        return int(self.quick.last()) if self.quick is not None else self._seq

    def next_request(self) -> int:
        """A number for a request that begins now."""
        self.requests += 1
        return self.requests

    def emit(
        self, kind: str, fields: Dict[str, Any], data: bytes = b"", request: Optional[int] = None
    ) -> int:
        """Record one event; returns its seq, 0 when nothing is recorded. An error of its own never comes out; what a handler of
        a signal raises meanwhile (KeyboardInterrupt, SystemExit) does.

        Args:
            kind: one of ``EventKind`` in ``relive.recording.events``.
            fields: what JSON can hold. Texts in it were scrubbed by the caller where they may hold secrets.
            request: its number where it is not that of the running context.
        """
        if self._ring is None:
            return 0
        try:
            quick = self.quick
            if quick is not None:
                written: Optional[int] = quick.emit(kind, fields, data, request)
                if written is not None:
                    return written
            text = encode(fields)
        except Exception as fault:
            self.switch_off(fault)
            return 0
        return self.emit_json(kind, text, data, request)

    def emit_json(self, kind: str, fields: str, data: bytes = b"", request: Optional[int] = None) -> int:
        """As ``emit``, with the fields as JSON, in ASCII: for events of one fixed shape that come often."""
        ring = self._ring
        if ring is None:
            return 0
        try:
            quick = self.quick
            if quick is not None:
                written: Optional[int] = quick.emit(kind, fields, data, request)
                if written is not None:
                    return written
            if ring.words[EPOCH] != ring.epoch:
                # Whoever asks for the mode first notices it there: so this was begun before the commit.
                self._find_ourselves_in_a_branch(ring)
                self.on_late(kind, json.loads(fields))
            self._seq = seq = next(self._numbers) if ring.quick is None else ring.quick.next()
            number, lane = _place()
            if request is not None:
                number = request
            meta = '[%d,%d,%d,"%s",%d,%d,%d,%s]' % (
                seq,
                mono(),
                _wall(),
                kind,
                _ident(),
                lane,
                number,
                fields,
            )
            self._put(seq, meta.encode("ascii"), data)
        except Exception as fault:
            self.switch_off(fault)
            return 0
        except BaseException as interruption:  # by a signal's handler: the service's own
            # Raised right behind ``acquire``, it has left a lock that nobody releases: events would pile up in the queue.
            # Whether it is that or another thread at work cannot be seen.
            if self._writing.locked():
                self.switch_off(interruption)
            raise
        return seq

    def _put(self, seq: int, meta: bytes, data: bytes) -> None:
        queue = self._queue
        writing = self._writing
        if queue or not writing.acquire(False):
            queue.append((seq, meta, data))
        else:
            try:
                if self._ring is not None:
                    self._ring.write(seq, meta, data)
            finally:
                writing.release()
            if not queue:
                return
        # Not empty where somebody was interrupted by us, or has come while we wrote.
        while queue and writing.acquire(False):
            try:
                ring = self._ring
                while queue:
                    number, first, second = queue.popleft()
                    if ring is not None:
                        ring.write(number, first, second)
            except IndexError:  # somebody else took the last one
                pass
            finally:
                writing.release()


recorder = Recorder()
