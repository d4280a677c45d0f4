"""Log records: every one that a logger of ``logging`` accepts, whatever its handlers make of it.

Event ``log-record``: ``logger``, ``level``, ``text`` (scrubbed, the first 8192 characters), ``where`` ("file:line"), and
``exception`` (name of its type) when it is logged with one. Recorded when the handlers are done: then the text mostly is there
already. Where no handler has made it, arguments of types that are not Python's own stand as ``<module.Class>``: no code of the
service is called for it.
"""

from typing import Any

from relive_recorder import quick
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.standing_in import stand_in

__all__ = ["install"]

_LONGEST = 8192  # [characters]
_PLAIN = frozenset((str, int, float, bool, type(None), bytes, complex))
_OWN = frozenset(("datetime", "decimal", "uuid", "pathlib", "fractions", "ipaddress"))


def install() -> None:
    """Wait for ``logging``."""
    when_imported("logging", _change)


def _change(module: Any) -> None:
    logger = module.Logger
    real = logger.callHandlers

    def callHandlers(self: Any, record: Any) -> Any:
        result = real(self, record)
        writer = recorder.quick
        if writer is None or writer.logged(record) is None:
            _tell(record)
        return result

    own = stand_in(callHandlers, real, module)
    if quick.module is None or not quick.module.logs(logger, recorder, real, _tell, own):
        logger.callHandlers = own


def _tell(record: Any) -> None:
    if recorder.mode() in (RECORD, REPLAY):
        attempt(_emit, record)


def _emit(record: Any) -> None:
    about = record.__dict__
    text = about.get("message")
    if type(text) is not str:
        text = _formatted(about.get("msg"), about.get("args"))
    fields = {
        "logger": str(about.get("name")),
        "level": str(about.get("levelname")),
        "text": recorder.scrubber.text(text[:_LONGEST]),
        "where": f"{about.get('pathname')}:{about.get('lineno')}",
    }
    raised = about.get("exc_info")
    if isinstance(raised, tuple) and isinstance(raised[0], type):
        fields["exception"] = f"{raised[0].__module__}.{raised[0].__qualname__}"
    recorder.emit("log-record", fields)


def _formatted(message: Any, args: Any) -> str:
    text = str(_harmless(message))
    if not args:
        return text
    try:
        if isinstance(args, dict):
            return text % {key: _harmless(value) for key, value in dict.items(args)}
        return text % tuple(map(_harmless, args))
    except Exception:  # logging would complain of it: not our business
        return text


def _harmless(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or kind.__module__ in _OWN:
        return value
    return f"<{kind.__module__}.{kind.__qualname__}>"
