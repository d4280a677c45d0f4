"""The Debug Adapter Protocol for a ``SteppingSession``: requests of an editor to answers and events.

Before the request stands in a line nobody can say whether a breakpoint is on code. An editor sends its breakpoints then, and
events tell it of them afterwards. What an editor can unfold (scopes, containers, objects) has a number until the request moves.

https://microsoft.github.io/debug-adapter-protocol/specification. Bytes and sockets are ``dap_server``'s. There is one thread, the
request. Editors show the requests ``stepBack`` and ``reverseContinue`` as buttons where an adapter says ``supportsStepBack``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from relive.errors import PlaceUnfit, ReliveError, UsageError
from relive.stepping.live import Breakpoint, Stop
from relive.stepping.stepping_session import SteppingSession, Variable

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
_FAILED = "The request stands before the line that failed; step back from here"
_NOTHING_RAISED = "Nothing was raised in it; it stands at its last line, step back from here"
_LATER = "It is looked for when the request has come to its failure"


@dataclass(frozen=True, slots=True)
class _Held:
    """What an editor can unfold.

    Attributes:
        of: "locals" or "globals" of the frame, or the "value" of an expression in it.
        watched: of "globals", what stands before a name where it is watched; of a value, the expression that is; None: none can be.
    """

    frame: int
    of: str
    expression: str = ""
    watched: str | None = None

    def watched_child(self, expression: str | None) -> str | None:
        """What watches a child; ``expression``: that gives it in the frame."""
        if self.watched is None or expression is None:
            return None
        if self.of == "globals":
            return self.watched + expression
        return f"({self.watched}){expression.removeprefix(f'({self.expression})')}"


class DapAdapter:
    """One session. One thread uses it.

    Args:
        about: the request in words, shown as the thread's name.
        failure: what failed in it, in words, as it was seen when it was recorded.

    Attributes:
        has_ended: the client has left, or ended the session.
    """

    def __init__(self, session: SteppingSession, about: str, failure: str) -> None:
        self._session = session
        self._about = about
        self._failure = failure
        self.has_ended = False
        self._sent = 0
        self._waiting: list[tuple[int, Breakpoint]] = []  # set before it stood in a line, with their numbers
        self._numbers = 0
        self._held: dict[int, _Held] = {}
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
        self._held.clear()
        reasons = {"breakpoint": "breakpoint", "watch": "data breakpoint"}
        reason, description = "step", None
        if stop is not None:
            reason = (
                self._why_back(stop) if command == "reverseContinue" else reasons.get(stop.stopped, "step")
            )
        elif command in ("stepBack", "reverseContinue"):
            description = _BEGINS
        elif not was_ended and self._session.last:
            self._session.go_to(self._session.last)
            description = _ENDS
        body: Message = {"reason": reason, "threadId": _THREAD, "allThreadsStopped": True}
        if description is not None:
            body |= {"description": description, "text": description}
        return "stopped", body

    def _why_back(self, stop: Stop) -> str:
        """Why it stands there that was reached by going to that position."""
        is_there = any(
            one.line == stop.line and f"/{one.file}".endswith(f"/{stop.file}")
            for one in self._session.breakpoints
        )
        return "breakpoint" if is_there else "data breakpoint"

    # -- beginning and end -----------------------------------------------------------------------------------------

    def _do_initialize(self, _given: Message) -> Iterator[Any]:
        yield dict(_CAPABILITIES)
        yield "initialized", {}

    def _do_attach(self, _given: Message) -> Iterator[Any]:
        yield {}

    _do_launch = _do_attach

    def _do_configurationDone(self, _given: Message) -> Iterator[Any]:
        stop = self._session.go_to_failure()
        self._held.clear()
        yield {}
        waiting, self._waiting = self._waiting, []
        for number, one in waiting:
            yield "breakpoint", {"reason": "changed", "breakpoint": self._set(number, one)}
        if stop is None:
            text = "The request came to no line of the service's own code.\n"
            yield "output", {"category": "important", "output": text}
            yield "terminated", {}
        else:
            # Editors show the text where the line is.
            where = _FAILED if self._session.raised else _NOTHING_RAISED
            text = f"{self._failure}\n{where}"
            body = {"reason": "exception", "description": where, "text": text, "threadId": _THREAD}
            yield "stopped", body | {"allThreadsStopped": True}

    def _do_disconnect(self, _given: Message) -> Iterator[Any]:
        self.has_ended = True
        yield {}

    def _do_terminate(self, _given: Message) -> Iterator[Any]:
        self.has_ended = True
        yield {}
        yield "terminated", {}

    def _do_pause(self, _given: Message) -> Iterator[Any]:
        """It stands: requests are answered one after the other, and each move ends in a stop."""
        yield {}

    # -- stops -----------------------------------------------------------------------------------------------------

    def _do_setBreakpoints(self, given: Message) -> Iterator[Any]:
        path = str(given["source"]["path"])
        wanted = [
            Breakpoint(path, int(one["line"]), str(one["condition"]) if one.get("condition") else None)
            for one in given.get("breakpoints") or []
        ]
        self._session.breakpoints[:] = [one for one in self._session.breakpoints if one.file != path]
        self._waiting = [one for one in self._waiting if one[1].file != path]
        told = []
        for one in wanted:
            self._numbers += 1
            if self._session.last:  # it has run once: what it consists of is known
                told.append(self._set(self._numbers, one))
            else:
                self._waiting.append((self._numbers, one))
                told.append({"id": self._numbers, "verified": False, "line": one.line, "message": _LATER})
        yield {"breakpoints": told}

    def _set(self, number: int, wanted: Breakpoint) -> Message:
        """Set it if there is code, and if its condition is an expression; what is said of it."""
        told = {"id": number, "line": wanted.line}
        try:
            self._session.check_place(wanted.file, wanted.line)
            if wanted.when is not None:
                self._session.check(wanted.when, is_watched=False)
        except PlaceUnfit as error:
            return told | {"verified": False, "message": str(error)}
        self._session.breakpoints.append(wanted)
        return told | {"verified": True}

    def _do_setFunctionBreakpoints(self, _given: Message) -> Iterator[Any]:
        yield {"breakpoints": []}

    _do_setExceptionBreakpoints = _do_setFunctionBreakpoints

    def _do_dataBreakpointInfo(self, given: Message) -> Iterator[Any]:
        name = str(given["name"])
        if given.get("variablesReference"):
            held = self._held_as(given["variablesReference"])
            found = next((one for one in self._children(held) if one.name == name), None)
            watched = held.watched_child(found.expression) if found is not None else None
            if watched is None:  # a local: its name means something in its frame only
                why = "only names of the program and of modules can be watched, and what they hold"
                yield {"dataId": None, "description": why}
                return
            name = watched
        self._session.check(name, is_watched=True)
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
        frame = int(given["frameId"]) - 1
        module, _ = self._session.global_variables(frame)
        locals_ = self._number(_Held(frame, "locals"))
        globals_ = self._number(_Held(frame, "globals", watched="" if module == "__main__" else f"{module}."))
        yield {
            "scopes": [
                {
                    "name": "Locals",
                    "presentationHint": "locals",
                    "variablesReference": locals_,
                    "expensive": False,
                },
                {
                    "name": f"Globals of {module}",
                    "presentationHint": "globals",
                    "variablesReference": globals_,
                    "expensive": True,
                },
            ]
        }

    def _do_variables(self, given: Message) -> Iterator[Any]:
        held = self._held_as(given["variablesReference"])
        yield {
            "variables": [
                {
                    "name": one.name,
                    "value": one.text,
                    "type": one.type,
                    **({"evaluateName": one.expression} if one.expression is not None else {}),
                    "variablesReference": self._number_of(held, one),
                }
                for one in self._children(held)
            ]
        }

    def _do_evaluate(self, given: Message) -> Iterator[Any]:
        frame = int(given.get("frameId") or 1) - 1
        found = self._session.evaluate(str(given["expression"]), frame)
        if found.raised:
            raise UsageError(f"it raises {found.text}")
        yield {
            "result": found.text,
            "type": found.type,
            "variablesReference": self._number_of(_Held(frame, ""), found),
        }

    def _held_as(self, number: Any) -> _Held:
        try:
            return self._held[int(number)]
        except KeyError:
            raise UsageError(
                f"nothing is called {number!r} here",
                cause="the request has moved since that value was shown",
                remedy="ask for the scopes again",
            ) from None

    def _children(self, held: _Held) -> list[Variable]:
        if held.of == "globals":
            return self._session.global_variables(held.frame)[1]
        if held.of == "locals":
            return self._session.variables(held.frame)
        return self._session.held_by(held.expression, held.frame)

    def _number_of(self, holder: _Held, one: Variable) -> int:
        """0: it cannot be unfolded."""
        if one.expression is None or not one.holds:
            return 0
        return self._number(
            _Held(holder.frame, "value", one.expression, holder.watched_child(one.expression))
        )

    def _number(self, held: _Held) -> int:
        number = len(self._held) + 1
        self._held[number] = held
        return number

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
