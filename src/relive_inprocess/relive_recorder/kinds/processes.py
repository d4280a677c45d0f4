"""Subprocesses: ``subprocess`` and what stands on it, and asyncio's.

Event ``subprocess``, when it is known how it ended: ``asked`` {"argv": list of texts, "shell" (true), "cwd"}, ``answer`` {"status":
int, negative for a signal} or ``error`` when it could not be started, ``ns``. In a replay it is really started, in the sandbox.
Not seen: ``os.system``, ``os.fork`` (a forked Python records for itself), ``os.posix_spawn``.
"""

import functools
import time
from typing import Any, Dict

from relive_recorder.calls import describe_error
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["install"]

_BEGAN = "_relive_began"
_mono = time.monotonic_ns


def install() -> None:
    """Wait for the two modules."""
    when_imported("subprocess", _change)
    when_imported("asyncio.base_subprocess", _change_asyncio)


def _change(module: Any) -> None:
    popen = module.Popen
    popen.__init__ = _starting(popen.__init__)
    popen._handle_exitstatus = _ending(popen._handle_exitstatus)


def _starting(real: Any) -> Any:
    @functools.wraps(real)
    def __init__(self: Any, args: Any, *given: Any, **named: Any) -> None:
        if recorder.mode() not in (RECORD, REPLAY):
            return real(self, args, *given, **named)  # type: ignore[no-any-return]
        began = _mono()
        asked = attempt(_asked, args, named)
        try:
            real(self, args, *given, **named)
        except BaseException as error:
            attempt(_failed, asked, began, error)
            raise
        self.__dict__[_BEGAN] = (asked, began)
        return None

    return __init__


def _ending(real: Any) -> Any:
    @functools.wraps(real)
    def _handle_exitstatus(self: Any, *given: Any, **named: Any) -> Any:
        result = real(self, *given, **named)
        attempt(_ended, self, self.returncode)
        return result

    return _handle_exitstatus


def _ended(process: Any, status: Any) -> None:
    asked, began = process.__dict__.pop(_BEGAN, (None, 0))
    if asked is not None:
        _emit(asked, began, {"answer": {"status": status}})


def _failed(asked: Any, began: int, error: BaseException) -> None:
    _emit(asked, began, {"error": describe_error(error)})


def _change_asyncio(module: Any) -> None:
    transport = module.BaseSubprocessTransport
    real = transport._process_exited

    @functools.wraps(real)
    def _process_exited(self: Any, returncode: int) -> Any:
        if self._proc is not None:
            attempt(_ended, self._proc, returncode)
        return real(self, returncode)

    transport._process_exited = _process_exited


def _asked(args: Any, named: Dict[str, Any]) -> Dict[str, Any]:
    scrub = recorder.scrubber.text
    several = args if isinstance(args, (list, tuple)) else [args]
    asked: Dict[str, Any] = {"argv": recorder.scrubber.words([_text(one) for one in several[:1000]])}
    if named.get("shell"):
        asked["shell"] = True
    if named.get("cwd") is not None:
        asked["cwd"] = scrub(_text(named["cwd"]))
    return asked


def _text(argument: Any) -> str:
    if isinstance(argument, bytes):
        return bytes(argument).decode("utf-8", "replace")
    if isinstance(argument, str):
        return str.__str__(argument)
    if type(argument).__module__.startswith("pathlib"):
        return str(argument)
    return f"<{type(argument).__name__}>"


def _emit(asked: Any, began: int, outcome: Dict[str, Any]) -> None:
    if asked is not None:
        recorder.emit("subprocess", {"asked": asked, "ns": _mono() - began, **outcome})
