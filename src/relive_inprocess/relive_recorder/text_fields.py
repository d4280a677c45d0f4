"""Fields with names in a text, as JSON, forms, programs, headers and command lines write them."""

import re
from typing import Any, Iterable, List, Optional

from .lazy_pattern import LazyPattern  # the host imports this by another name of the package

__all__ = ["TextField", "field_at", "places_of"]

_JSON_FIELD = LazyPattern(r'"([^"\\]{1,64})("\s*:\s*")((?:[^"\\]|\\.)*)"', re.DOTALL)
# JSON in a text of JSON.
_ESCAPED_FIELD = LazyPattern(r'"([^"\\]{1,64})(\\"\s*:\s*\\")((?:[^"\\]|\\[^"])*)\\"', re.DOTALL)
_FORM_FIELD = LazyPattern(r"([A-Za-z0-9_.%\[\]-]{1,64})(=)([^&\s;,'\"<>)}\]]+)")
# As programs and languages write a field: name = 'value', "name": b'value', name => "value".
_QUOTED_FIELD = LazyPattern(
    r"([A-Za-z0-9_.%\[\]-]{1,64})(['\"`]?\s{0,4}(?:=>|==|!=|<>|[:=])\s{0,4}[bBrRuU]?(?:'(?=((?:[^'\\]|\\.)*))|\"(?=((?:[^\"\\]|\\.)*))))",
    re.DOTALL,
)
# A line of a header or of YAML, and an option with its value: only what has a digit or a sign in it is taken for one.
_BARE_FIELD = LazyPattern(
    r"([A-Za-z0-9_.-]{1,64})(:[ \t]{1,4})(?=[A-Za-z]*[^A-Za-z\s])([^\s,;'\"<>(){}\[\]]{6,})"
)
_OPTION = LazyPattern(
    r"(?<=--)([A-Za-z0-9_.-]{1,64})([ \t]+)(?=[A-Za-z]*[^A-Za-z\s])([^\s,;'\"<>(){}\[\]-][^\s'\"<>]{5,})"
)
_NAME_BEFORE = LazyPattern(r"[A-Za-z0-9_.%\[\]-]*\Z")


def places_of(low: str, hints: Iterable[str]) -> List[int]:
    """Where a name with one of these in it may stand, in rising order."""
    spots = []
    for hint in hints:
        at = low.find(hint)
        while at >= 0:
            spots.append(at)
            at = low.find(hint, at + len(hint))
    return sorted(spots)


class TextField:
    """A field in a text: where it starts, its name, its value as it is meant, and where that is written."""

    __slots__ = ("at", "end", "name", "start", "value")

    def __init__(self, found: Any, group: int, value: str) -> None:
        self.start: int = found.start()
        self.name: str = found[1]
        self.at: int = found.start(group)
        self.end: int = found.end(group)
        self.value = value


def field_at(value: str, spot: int) -> Optional[TextField]:
    """The field whose name goes over a place, in JSON, a form, or as programs write one; or None."""
    begin = max(0, spot - 64)
    quote = value.rfind('"', begin, spot)
    if quote >= 0:
        found = _JSON_FIELD.match(value, quote) or _ESCAPED_FIELD.match(value, quote)
        if found is not None and found.end(1) > spot:
            return TextField(found, 3, _from_json(found[3]))
    before = _NAME_BEFORE.search(value, begin, spot)
    at = spot if before is None else before.start()
    found = _FORM_FIELD.match(value, at)
    if found is not None:
        return TextField(found, 3, _from_form(found[3]))
    found = _QUOTED_FIELD.match(value, at)
    if found is not None:
        return TextField(
            found, 3 if found[3] is not None else 4, found[3] if found[3] is not None else found[4]
        )
    found = _BARE_FIELD.match(value, at)
    if found is None and value[at : at + 2] == "--":
        found = _OPTION.match(value, at + 2)
    return None if found is None else TextField(found, 3, found[3])


def _from_form(value: str) -> str:
    if "%" not in value and "+" not in value:
        return value
    from urllib.parse import unquote_plus

    return unquote_plus(value)


def _from_json(value: str) -> str:
    if "\\" not in value:
        return value
    from json import loads

    try:
        return str(loads(f'"{value}"', strict=False))
    except ValueError:
        return value
