"""Which request the running code belongs to, and which lane of it.

A *request* is numbered by the recorder from 1, in the order in which the server began with them in this process. A *lane*
is one thread or asyncio task that works for it. The first is lane 1. One that was started by another (``lanes``) has a number of
up to 52 bits that is made of the starter's and of how many it had started before, so that it is the same in a replay,
however they race; one of which nobody saw the start has the next number from 2 on. Request 0 is all code that works for none:
there each thread or task is a lane for as long as its context lives.

What a call to somebody else does until it has its answer (a token that is fetched first, a log written by an adapter, tasks of a
driver) is part of the call: in a replay the call is answered, and none of it happens. There the lane's number has the bit
``WITHIN`` as well (``inward``), so that nobody waits for it in a replay, and what it starts is not counted among what the lane
starts.

Contexts (contextvars) carry the request into tasks, and into threads that copy their context (``asyncio.to_thread``, anyio's
workers); into other threads ``lanes`` carries it.
"""

import itertools
import sys
import threading
from contextvars import ContextVar, Token, copy_context
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Union

__all__ = [
    "OUTSIDE",
    "WITHIN",
    "Birth",
    "Request",
    "bear",
    "begin",
    "begin_born",
    "carried",
    "end",
    "enter",
    "for_quick",
    "further",
    "here",
    "inward",
    "know_greenlets",
    "lane",
    "leave",
    "leave_request",
    "made",
    "outward",
    "place",
    "task_of",
]

_thread_id: Callable[[], int] = threading.get_ident


def _no_loop() -> Any:
    """As long as nobody has imported asyncio, which takes too long to do it here, there is no loop."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not hasattr(asyncio, "current_task"):
        return None
    global _current_loop, _current_task
    _current_loop, _current_task = asyncio._get_running_loop, asyncio.current_task
    return _current_loop()


_current_loop: Callable[[], Any] = _no_loop
_current_task: Callable[[Any], Any] = id


class Request:
    """One request inside the service.

    Args:
        about: or a function that gives it, and its arguments, which is called when somebody wants to know.

    Attributes:
        number: from 1; 0 stands for "no request". In a replay the number it had in the recording.
        handling: of one that a server handles, its ``Handling``; else None.
        store: room for whoever keeps something per request (the player's place in the recording).
    """

    __slots__ = ("_about", "lanes", "number", "store")
    handling: Any = None

    def __init__(self, number: int, about: Union[Dict[str, Any], Tuple[Any, ...]]) -> None:
        self.number = number
        self._about = about
        self.lanes = itertools.count(1)
        self.store: Dict[str, Any] = {}

    @property
    def about(self) -> Dict[str, Any]:
        """What the server knows of it: method, target, peer (host, port), server."""
        about = self._about
        if not isinstance(about, dict):
            make, *given = about
            about = self._about = make(*given)
        return about


class Birth:
    """A lane that is known before its thread or task runs, so that two of them do not race for their numbers.

    Attributes:
        who: runs in it; 0 until it did anything that is recorded.
    """

    __slots__ = ("number", "request", "who")

    def __init__(self, request: Request, number: int) -> None:
        self.request = request
        self.number = number
        self.who = 0


class _OfThread(threading.local):
    """What is known of a thread, or of a greenlet. The class's attribute is what is known of most: to find that none is there takes
    longer.
    """

    birth: Optional[Birth] = None


_Lane = Tuple[Request, int, int, Iterator[int]]
WITHIN = 1 << 52  # in a lane's number: this is part of a call
_LANES = WITHIN - 1  # together they are what a number of JSON holds for everybody
OUTSIDE = Request(0, {})
_request: "ContextVar[Request]" = ContextVar("relive_request", default=OUTSIDE)
# (request, who works, lane, those it starts): inherited by tasks and copied contexts, where "who works" then is somebody else.
_lane: "ContextVar[Optional[_Lane]]" = ContextVar("relive_lane", default=None)
_born: "ContextVar[Optional[Birth]]" = ContextVar("relive_born", default=None)  # of tasks
# birth: of what runs in it now, also where it runs in another thread's context
_of_thread: Any = _OfThread()


def know_greenlets(current: Callable[[], Any], local: Any) -> None:
    """From now on greenlets are told apart as threads are: ``current`` gives the running one, ``local`` is as
    ``threading.local``. Each has a context of its own already.
    """
    global _thread_id, _of_thread, _here, bear
    if _in_c is not None:
        _in_c.leave_lanes()
    _thread_id = lambda: id(current())  # noqa: E731 - one call less where every event asks
    _of_thread = type("_OfGreenlet", (local,), {"birth": None})()
    _here, bear = _here_in_python, _bear_in_python  # the part in C knows threads only


# () -> Request: the one that the running code works for; ``OUTSIDE`` where there is none.
here: Callable[[], Request] = _request.get


def begin(request: Request) -> "Token[Request]":
    """Work for a request from now on, in this context."""
    return _request.set(request)


def end(token: "Token[Request]") -> None:
    """Work for what it was before; called in another context than ``begin`` (a generator closed elsewhere) it does nothing."""
    try:
        _request.reset(token)
    except ValueError:
        pass


def leave_request() -> None:
    """Work for none from now on, in this context."""
    _request.set(OUTSIDE)


def lane() -> int:
    """The running thread's or task's number within its request."""
    return _here()[2]


def place() -> Tuple[int, int]:
    """(the request's number, ``lane``) of the running code."""
    request = _request.get()
    known = _lane.get()
    if known is not None and known[0] is request:
        loop = _current_loop()
        if known[1] == (_thread_id() if loop is None else id(_current_task(loop)) | 1):
            return request.number, known[2]
    return request.number, _here()[2]


def _here_now() -> "_Lane":
    return _here()  # which may become another function


def for_quick() -> Tuple[Any, ...]:
    """What ``place`` goes by, for the writer in C where it finds no lanes itself: who finds one out, the request that is none."""
    return _here_now, OUTSIDE


def _here_in_python() -> _Lane:
    request = _request.get()
    loop = _current_loop()
    # The low bits tell tasks from threads; both are addresses of aligned objects.
    who = _thread_id() if loop is None else id(_current_task(loop)) | 1
    known = _lane.get()
    if known is not None and known[0] is request and known[1] == who:
        return known
    number = _lane_at_birth(request, who) or next(request.lanes)
    known = request, who, number, itertools.count(1)
    _lane.set(known)
    return known


def inward() -> Tuple[_Lane, _Lane]:
    """A call begins, in this thread or task; returns what ``outward`` wants when it has ended. The outermost counts."""
    before = _here()
    request, who, number, _ = before
    within = request, who, number | WITHIN, itertools.count(1)
    _lane.set(within)
    return before, within


def outward(call: Tuple[_Lane, _Lane]) -> None:
    """The call has ended, or the service's own code runs within it; does nothing where another lane is worked in."""
    if _lane.get() is call[1]:
        _lane.set(call[0])


def further(call: Tuple[_Lane, _Lane]) -> None:
    """The service's own code has done its part; does nothing where another lane is worked in."""
    if _lane.get() is call[0]:
        _lane.set(call[1])


def carried(work: Callable[..., Any]) -> Callable[..., Any]:
    """As ``work``, but wherever it is called, once, it is done for this request and in this lane.

    For libraries that hand work to a thread of their own and wait for it: the lane must do nothing else meanwhile.
    """
    here_and_now = copy_context()
    request, _, number, started = _here()

    def do(given: Any, named: Any) -> Any:
        _lane.set((request, _thread_id(), number, started))
        return work(*given, **named)

    def elsewhere(*given: Any, **named: Any) -> Any:
        return here_and_now.run(do, given, named)

    return elsewhere


def _lane_at_birth(request: Request, who: int) -> int:
    birth = _born.get()
    if birth is None or birth.request is not request or birth.who not in (0, who):
        birth = _of_thread.birth
        if birth is None or birth.request is not request or birth.who not in (0, who):
            return 0
    birth.who = who
    return birth.number


def _bear_in_python() -> Birth:
    request, _, number, started = _here()
    # Of integers a hash is the same in every process.
    return Birth(request, hash((number, next(started))) & _LANES | number & WITHIN)


_here: Callable[[], _Lane] = _here_in_python
# () -> Birth: the lane of a thread or task that is about to be started by the running code, for the same request.
bear: Callable[[], Birth] = _bear_in_python


_in_c: Any = None  # the module


def in_c(module: Any) -> None:
    """Have lanes found by the part in C, which finds the same ones."""
    global _here, _in_c, bear
    _in_c = module
    if module.lanes(_request, _lane, _born, _of_thread, Birth):
        _here, bear = module.here, module.bear


# (birth) -> token: a task that is made from now on, which copies this context, is in that lane; ``made(token)`` ends it, in the
# same context.
task_of: "Callable[[Birth], Token[Optional[Birth]]]" = _born.set
made: "Callable[[Token[Optional[Birth]]], None]" = _born.reset


def begin_born(birth: Birth) -> None:
    """Be in that lane, in this context, for as long as it lives."""
    _request.set(birth.request)
    _born.set(birth)


def enter(birth: Birth) -> Tuple[Request, Optional[Birth]]:
    """Be in that lane, in this thread; returns what ``leave`` wants."""
    before = _request.get(), _of_thread.birth
    _request.set(birth.request)
    _lane.set(None)  # a worker's lane is that of its present work, not of the last one
    _of_thread.birth = birth
    return before


def leave(before: Tuple[Request, Optional[Birth]]) -> None:
    """Be where this thread was before ``enter``."""
    _request.set(before[0])
    _lane.set(None)
    _of_thread.birth = before[1]
