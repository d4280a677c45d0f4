"""The answer to a question."""

import json

from .evaluation import evaluate
from .heap import census, largest, newest_entries
from .holders import addresses, holders
from .names import modules, own_globals
from .stacks import stacks
from .tasks import tasks
from .waits import waits
from .walk import dump, sum_up, tell_changed


def answer(question):
    """The answer to a question, bytes of JSON; it never raises."""
    try:
        wanted = json.loads(question)
        return json.dumps(_KINDS[wanted["kind"]](wanted)).encode()
    except BaseException as error:  # SystemExit, too: whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _state(wanted):
    told = {"threads": stacks(wanted), "tasks": tasks(), "waits": waits()}
    return {**told, "globals": own_globals(wanted["most"])}


_KINDS = {
    "evaluate": evaluate,
    "stacks": _state,
    "modules": modules,
    "dump": dump,
    "sums": sum_up,
    "changed": tell_changed,
    "census": census,
    "entries": newest_entries,
    "holders": holders,
    "addresses": addresses,
    "largest": largest,
}
