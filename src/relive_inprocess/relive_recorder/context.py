"""Which request the running code belongs to, and which lane of it.

A *request* is numbered by the recorder from 1, in the order in which the server began with them in this process. A *lane*
is one thread or asyncio task that works for it, numbered from 1 in the order in which they first did anything that is
recorded; in a replay they do so in the same order, while thread ids and names of tasks differ. Request 0 is all code that
works for none: there each thread or task is a lane for as long as its context lives.

Contexts (contextvars) carry the request into tasks, and into threads that copy their context (``asyncio.to_thread``, anyio's
workers).
"""

import itertools
import sys
import threading
from contextvars import ContextVar, Token, copy_context
from typing import Any, Callable, Dict, Optional, Tuple

__all__ = ["OUTSIDE", "Request", "begin", "carried", "end", "here", "lane", "place"]

_thread_id = threading.get_ident


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

    Attributes:
        number: from 1; 0 stands for "no request". In a replay the number it had in the recording.
        about: what the server knows of it: method, target, peer (host, port), server.
        store: room for whoever keeps something per request (the player's place in the recording).
    """

    __slots__ = ("about", "lanes", "number", "store")

    def __init__(self, number: int, about: Dict[str, Any]) -> None:
        self.number = number
        self.about = about
        self.lanes = itertools.count(1)
        self.store: Dict[str, Any] = {}


OUTSIDE = Request(0, {})
_request: "ContextVar[Request]" = ContextVar("relive_request", default=OUTSIDE)
# (request, who works, lane): inherited by tasks and copied contexts, where "who works" then is somebody else.
_lane: "ContextVar[Optional[Tuple[Request, int, int]]]" = ContextVar("relive_lane", default=None)


def here() -> Request:
    """The request that the running code works for; ``OUTSIDE`` where there is none."""
    return _request.get()


def begin(request: Request) -> "Token[Request]":
    """Work for a request from now on, in this context."""
    return _request.set(request)


def end(token: "Token[Request]") -> None:
    """Work for what it was before; called in another context than ``begin`` (a generator closed elsewhere) it does nothing."""
    try:
        _request.reset(token)
    except ValueError:
        pass


def lane() -> int:
    """The running thread's or task's number within its request."""
    return place()[1]


def place() -> Tuple[int, int]:
    """(the request's number, ``lane``) of the running code."""
    request = _request.get()
    loop = _current_loop()
    # The low bits tell tasks from threads; both are addresses of aligned objects.
    who = _thread_id() if loop is None else id(_current_task(loop)) | 1
    known = _lane.get()
    if known is not None and known[0] is request and known[1] == who:
        return request.number, known[2]
    number = next(request.lanes)
    _lane.set((request, who, number))
    return request.number, number


def carried(work: Callable[..., Any]) -> Callable[..., Any]:
    """As ``work``, but wherever it is called, once, it is done for this request and in this lane.

    For libraries that hand work to a thread of their own and wait for it: the lane must do nothing else meanwhile.
    """
    here_and_now, request, number = copy_context(), _request.get(), lane()

    def do(given: Any, named: Any) -> Any:
        _lane.set((request, _thread_id(), number))
        return work(*given, **named)

    def elsewhere(*given: Any, **named: Any) -> Any:
        return here_and_now.run(do, given, named)

    return elsewhere
