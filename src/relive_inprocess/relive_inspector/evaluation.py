"""The value of an expression, and what came of it otherwise."""

import traceback

from .holders import referrers_of
from .names import usable_names, where_named
from .parts_of_values import leaves_of
from .texts import WHOLE_LENGTH, length_of, text_of, type_of


def evaluate(wanted):
    names = usable_names(wanted.get("module"))
    if names is None:
        return {"failed": "there is no module {!r} in the process".format(wanted["module"])}
    try:
        value = eval(compile(wanted["expression"], "<expression>", "eval"), names)
        leaves = leaves_of(value, "", wanted["depth"], wanted["most"]) if wanted["depth"] else ([], False)
        most = wanted.get("referrers", 0)
        referrers = referrers_of(value, most, {id(names)}) if most else ([], 0)
        return {
            "type": type_of(value),
            "text": text_of(value, WHOLE_LENGTH),
            "length": length_of(value),
            "parts": leaves[0],
            "cut": leaves[1],
            "referrers": referrers[0],
            "referrers_left_out": referrers[1],
        }
    except BaseException as error:
        within = error.__traceback__ and error.__traceback__.tb_next  # without this function's own frame
        lines = traceback.format_exception(type(error), error, within)
        return {
            "raised": {
                "type": type(error).__name__,
                "message": _message(error),
                "traceback": ("".join(lines) + _advice(error))[-WHOLE_LENGTH:],
            }
        }


def _message(error):
    try:
        return str(error)[:WHOLE_LENGTH]
    except Exception:
        return ""


def _advice(error):
    """Where several of the service's own modules have what a name may mean."""
    name = str(error).split("'")[1:2] if isinstance(error, NameError) else []
    modules = where_named(name[0]) if name else []
    if len(modules) < 2:
        return ""
    return "It is a name of {}: say {}.{}".format(", ".join(modules), modules[0], name[0])
