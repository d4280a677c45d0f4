"""The value of an expression, and what came of it otherwise."""

import traceback

from .names import usable_names
from .parts_of_values import leaves_of
from .texts import WHOLE_LENGTH, length_of, text_of, type_of


def evaluate(wanted):
    names = usable_names(wanted.get("module"))
    if names is None:
        return {"failed": "there is no module {!r} in the process".format(wanted["module"])}
    try:
        value = eval(compile(wanted["expression"], "<expression>", "eval"), names)
        leaves = leaves_of(value, "", wanted["depth"], wanted["most"]) if wanted["depth"] else ([], False)
        return {
            "type": type_of(value),
            "text": text_of(value, WHOLE_LENGTH),
            "length": length_of(value),
            "parts": leaves[0],
            "cut": leaves[1],
        }
    except BaseException as error:
        within = error.__traceback__ and error.__traceback__.tb_next  # without this function's own frame
        lines = traceback.format_exception(type(error), error, within)
        return {
            "raised": {
                "type": type(error).__name__,
                "message": _message(error),
                "traceback": "".join(lines)[-WHOLE_LENGTH:],
            }
        }


def _message(error):
    try:
        return str(error)[:WHOLE_LENGTH]
    except Exception:
        return ""
