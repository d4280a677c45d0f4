"""The Debug Adapter Protocol for a ``SteppingSession``: requests of an editor to answers and events.

https://microsoft.github.io/debug-adapter-protocol/specification. Bytes and sockets are ``dap_server``'s. There is one thread, the
request. Editors show the requests ``stepBack`` and ``reverseContinue`` as buttons where an adapter says ``supportsStepBack``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from relive.errors import PlaceUnfit, ReliveError, UsageError
from relive.stepping.live import Breakpoint, Stop
from relive.stepping.stepping_session import SteppingSession

__all__ = ["DapAdapter", "Message"]

Message = dict[str, Any]
_THREAD = 1
_CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsStepBack": True,
    "supportsConditionalBreakpoints": True,
    "supportsDataBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsTerminateRequest": True,
}
_ENDS = "The request has ended; this is its last line"
_BEGINS = "Nothing to stop at before this"


class DapAdapter:
    """One session. One thread uses it.

    Args:
        about: the request in words, shown as the thread's name.

    Attributes:
        has_ended: the client has left, or ended the session.
    """

    def __init__(self, session: SteppingSession, about: str) -> None:
        self._session = session
        self._about = about
        self.has_ended = False
        self._sent = 0
        self._moves: dict[str, Callable[[], Stop | None]] = {
            "continue": lambda: session.forward("continue"),
            "next": lambda: session.forward("next"),
            "stepIn": lambda: session.forward("step"),
            "stepOut": lambda: session.forward("out"),
            "stepBack": lambda: session.back("next"),
            "reverseContinue": lambda: session.back("continue"),
        }

    def handle(self, request: Message) -> Iterator[Message]:
        """The answer to one request, and the events that it leads to."""
        command, given = request.get("command"), request.get("arguments")
        try:
            arguments = given if isinstance(given, dict) else {}
            answers = list(self._answered(str(command), arguments))
        except ReliveError as error:
            yield self._response(request, False, {"error": _error(str(error))}, str(error))
            return
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
        ) as error:  # of what the client has sent
            message = (
                f"{command} has other arguments than the protocol says ({type(error).__name__}: {error})"
            )
            yield self._response(request, False, {"error": _error(message)}, message)
            return
        body, *events = answers
        yield self._response(request, True, body)
        for name, content in events:
            yield self._message({"type": "event", "event": name, "body": content})

    def _answered(self, command: str, given: Message) -> Iterator[Any]:
        """The body of the answer, then (name, body) of each event."""
        if command in self._moves:
            was_ended = self._session.stop is None
            stop = self._moves[command]()
            yield {"allThreadsContinued": True} if command in ("continue", "reverseContinue") else {}
            yield self._stopped(command, stop, was_ended=was_ended)
            return
        answer = getattr(self, f"_do_{command}", None)
        if answer is None:
            raise UsageError(
                f"the request {command!r} is not known", remedy="`initialize` tells what is supported"
            )
        yield from answer(given)

    def _stopped(self, command: str, stop: Stop | None, *, was_ended: bool = False) -> tuple[str, Message]:
        reasons = {"breakpoint": "breakpoint", "watch": "data breakpoint"}
        reason, description = "step", None
        if stop is not None:
            reason = reasons.get(stop.stopped, "step")
        elif command in ("stepBack", "reverseContinue"):
            description = _BEGINS
        elif not was_ended and self._session.last:
            self._session.go_to(self._session.last)
            description = _ENDS
        body: Message = {"reason": reason, "threadId": _THREAD, "allThreadsStopped": True}
        if description is not None:
            body |= {"description": description, "text": description}
        return "stopped", body

    # -- beginning and end -----------------------------------------------------------------------------------------

    def _do_initialize(self, _given: Message) -> Iterator[Any]:
        yield dict(_CAPABILITIES)
        yield "initialized", {}

    def _do_attach(self, _given: Message) -> Iterator[Any]:
        yield {}

    _do_launch = _do_attach

    def _do_configurationDone(self, _given: Message) -> Iterator[Any]:
        stop = self._session.go_to_failure()
        yield {}
        if stop is None:
            text = "The request came to no line of the service's own code.\n"
            yield "output", {"category": "important", "output": text}
            yield "terminated", {}
        else:
            text = "This is where it failed. Step back."
            body = {"reason": "exception", "description": text, "text": text, "threadId": _THREAD}
            yield "stopped", body | {"allThreadsStopped": True}

    def _do_disconnect(self, _given: Message) -> Iterator[Any]:
        self.has_ended = True
        yield {}

    def _do_terminate(self, _given: Message) -> Iterator[Any]:
        self.has_ended = True
        yield {}
        yield "terminated", {}

    # -- stops -----------------------------------------------------------------------------------------------------

    def _do_setBreakpoints(self, given: Message) -> Iterator[Any]:
        path = str(given["source"]["path"])
        wanted = [
            Breakpoint(path, int(one["line"]), str(one["condition"]) if one.get("condition") else None)
            for one in given.get("breakpoints") or []
        ]
        others = [one for one in self._session.breakpoints if one.file != path]
        found, verified = [], []
        for one in wanted:
            try:
                self._session.check_place(one.file, one.line)
            except PlaceUnfit as error:
                verified.append({"verified": False, "line": one.line, "message": str(error)})
            else:
                found.append(one)
                verified.append({"verified": True, "line": one.line})
        self._session.breakpoints[:] = [*others, *found]
        yield {"breakpoints": verified}

    def _do_setFunctionBreakpoints(self, _given: Message) -> Iterator[Any]:
        yield {"breakpoints": []}

    _do_setExceptionBreakpoints = _do_setFunctionBreakpoints

    def _do_dataBreakpointInfo(self, given: Message) -> Iterator[Any]:
        name = str(given["name"])
        if given.get("variablesReference"):  # a local: its name means something in its frame only
            yield {"dataId": None, "description": "only names of the program and of modules can be watched"}
            return
        yield {"dataId": name, "description": name, "accessTypes": ["write"]}

    def _do_setDataBreakpoints(self, given: Message) -> Iterator[Any]:
        verified, watches = [], []
        for one in given["breakpoints"]:
            try:
                self._session.check(str(one["dataId"]), is_watched=True)
            except PlaceUnfit as error:
                verified.append({"verified": False, "message": str(error)})
            else:
                verified.append({"verified": True})
                watches.append(str(one["dataId"]))
        self._session.watches[:] = watches
        yield {"breakpoints": verified}

    # -- looking ---------------------------------------------------------------------------------------------------

    def _do_threads(self, _given: Message) -> Iterator[Any]:
        yield {"threads": [{"id": _THREAD, "name": self._about}]}

    def _do_stackTrace(self, given: Message) -> Iterator[Any]:
        frames = self._session.stack()
        first, levels = int(given.get("startFrame") or 0), int(given.get("levels") or len(frames))
        shown = [
            {
                "id": number + 1,
                "name": frame.function,
                "line": frame.line,
                "column": 1,
                "source": {"name": PurePosixPath(frame.file).name, "path": frame.file},
                "presentationHint": "normal" if frame.own else "subtle",
            }
            for number, frame in enumerate(frames)
        ]
        yield {"stackFrames": shown[first : first + levels], "totalFrames": len(frames)}

    def _do_scopes(self, given: Message) -> Iterator[Any]:
        number = int(given["frameId"])
        yield {"scopes": [{"name": "Locals", "variablesReference": number, "expensive": False}]}

    def _do_variables(self, given: Message) -> Iterator[Any]:
        found = self._session.variables(int(given["variablesReference"]) - 1)
        yield {
            "variables": [
                {
                    "name": one.name,
                    "value": one.text,
                    "type": one.type,
                    "evaluateName": one.name,
                    "variablesReference": 0,
                }
                for one in found
            ]
        }

    def _do_evaluate(self, given: Message) -> Iterator[Any]:
        found = self._session.evaluate(str(given["expression"]), int(given.get("frameId") or 1) - 1)
        if found.raised:
            raise UsageError(f"it raises {found.text}")
        yield {"result": found.text, "type": found.type, "variablesReference": 0}

    # -- messages --------------------------------------------------------------------------------------------------

    def _response(self, request: Message, success: bool, body: Message, message: str = "") -> Message:
        shared = {"type": "response", "request_seq": request.get("seq", 0), "success": success}
        answer = shared | {"command": request.get("command"), "body": body}
        return self._message(answer | ({"message": message} if message else {}))

    def _message(self, body: Message) -> Message:
        self._sent += 1
        return {"seq": self._sent, **body}


def _error(message: str) -> Message:
    # The protocol's own braces stand for variables.
    return {"id": 1, "format": message.replace("{", "(").replace("}", ")"), "showUser": True}
