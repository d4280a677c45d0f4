"""The worker threads of a Node.js process, each spoken to through the inspector of the main thread (the ``NodeWorker`` domain)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from relive.inspection.node.inspector import Inspector, InspectorLate
from relive.inspection.node.looking import path_of

__all__ = ["Worker", "WorkerSession", "workers_of"]

_MOST = 32  # workers
_EACH = 3.0  # [s] for one that is in native code, and so does not answer
_SAID = "NodeWorker.receivedMessageFromWorker"


@dataclass(slots=True)
class WorkerSession:
    """A ``Conversation`` with one worker, whose messages go through that with its main thread.

    Attributes:
        number: of the session.
        events: what the worker told unasked, (method, params), oldest first.
    """

    main: Inspector
    number: str
    until: float
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _asked: int = 0

    def send(self, method: str, **params: Any) -> int:
        """Give a command whose result nobody awaits; its number."""
        self._asked += 1
        message = json.dumps({"id": self._asked, "method": method, "params": params})
        self.main.ask("NodeWorker.sendMessageToWorker", sessionId=self.number, message=message)
        return self._asked

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """As ``Inspector.ask``."""
        number = self.send(method, **params)
        while True:
            for told in self._said():
                if told.get("id") == number:
                    if "error" in told:
                        raise ValueError(str(told["error"].get("message", "")))
                    return dict(told["result"])
            self._await_more()

    def await_event(self, method: str, ends: Callable[[], bool]) -> dict[str, Any] | None:
        """As ``Inspector.await_event``."""
        while True:
            list(self._said())
            found = next((params for name, params in self.events if name == method), None)
            if found is not None or ends():
                return found
            self._await_more()

    def _said(self) -> Iterator[dict[str, Any]]:
        """Answers of this worker that came; its events are put aside."""
        for name, params in list(self.main.events):
            if name != _SAID or params.get("sessionId") != self.number:
                continue
            self.main.events.remove((name, params))
            told = json.loads(params["message"])
            if "method" in told:
                self.events.append((told["method"], told.get("params", {})))
            else:
                yield told

    def _await_more(self) -> None:
        if time.monotonic() > self.until:
            raise InspectorLate
        self.main.take(self.until)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker thread: what Node.js calls it, and the script that it was started with."""

    title: str
    file: str
    session: WorkerSession


def workers_of(main: Inspector) -> list[Worker]:
    """All that run, as many as are told; ``main`` may stand in its debugger."""
    main.ask("NodeWorker.enable", waitForDebuggerOnStart=False)
    attached = [params for name, params in main.events if name == "NodeWorker.attachedToWorker"]
    found = []
    for one in attached[:_MOST]:
        about = one["workerInfo"]
        until = min(main.until, time.monotonic() + _EACH)
        session = WorkerSession(main, str(one["sessionId"]), until)
        found.append(Worker(str(about["title"]), path_of(str(about["url"])), session))
    return found
