"""The way in: one question in JSON has the process followed from then on."""

import json
import os

from .follower import Follower
from .installing import install
from .places import Point, codes_by_file
from .records import Records
from .refusal import Refused
from .session import Session
from .watch import WatchedExpression


def answer(question):
    """The answer to a question, bytes of JSON; it never raises."""
    try:
        wanted = json.loads(question)
        return json.dumps(_follow(wanted)).encode()
    except Refused as error:
        return json.dumps({"refused": error.refusal}).encode()
    except BaseException as error:  # whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _follow(wanted):
    """Follow all threads from now on.

    ``points`` are {"file", "line", "expressions", "when" (or None)}; ``watch`` is {"expression", "module" (or None)} or None;
    ``most`` is how many records are kept, and ``bytes`` how much room they may take. ``session`` is that of a debugger, or None:
    {"request", "pid", "target", "breakpoints", "watches"}: the request is number ``request`` of process ``pid`` (0: of any).
    """
    out = Records(wanted["most"], wanted["bytes"])
    codes = codes_by_file() if wanted["points"] else {}
    points = [Point(number, one, codes) for number, one in enumerate(wanted["points"])]
    watch = WatchedExpression(wanted["watch"]) if wanted["watch"] is not None else None
    session = Session(wanted["session"], out) if wanted.get("session") is not None else None
    follower = Follower(out, points, watch, session)
    install(follower)
    return {
        "out": out.fd,
        "commands": session.commands[0] if session is not None else None,
        "replies": session.replies[1] if session is not None else None,
        "pid": os.getpid(),
        "points": [{"file": one.file, "line": one.line, "source": one.source} for one in points],
        "first": watch.last[1] if watch is not None else None,
    }
