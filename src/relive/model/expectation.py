"""What an answer is expected to be: ``status == 201 and json["id"] > 0``; pure.

The grammar is a part of Python's expressions, read by Python's own parser and never run as Python: names of ``_NAMES``, numbers,
texts, True, False, None, lists of these, subscripts, ``len()``, comparisons (also ``in`` and chains), ``and``, ``or``, ``not``. All
else is refused when it is read. docs/try.md has the table of names.

What is not there, such as ``json["id"]`` of an answer without it, or cannot be compared cannot be told. A kept state takes it as
not met, since the answer may be anything; a bisection takes it as a failed probe, since it says nothing of good or bad.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from relive.errors import UsageError
from relive.model.outcome import Outcome

__all__ = ["Expectation", "parse_expectation"]

_NAMES = ("status", "end", "body", "json", "headers", "seconds", "exception", "log")
_LENGTH_MOST = 1000  # [characters]
_DEPTH_MOST = 40
_SHOWN = 80  # [characters] of a value in a reason
_MISSING = object()

_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda one, other: bool(one == other),
    ast.NotEq: lambda one, other: bool(one != other),
    ast.Lt: lambda one, other: bool(one < other),
    ast.LtE: lambda one, other: bool(one <= other),
    ast.Gt: lambda one, other: bool(one > other),
    ast.GtE: lambda one, other: bool(one >= other),
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}


class _Unfit(Exception):
    """The answer has not what is asked for."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation that was read; ``text`` as it was written."""

    text: str
    _tree: ast.expr

    def why_not(self, outcome: Outcome) -> str | None:
        """Why an outcome does not meet it, or None where it does."""
        values = _answer_values(outcome)
        try:
            is_met = _truth(self._tree, values)
        except _Unfit as error:
            return f"{error} ({self._seen(values)})"
        return None if is_met else f"expected {self.text}, but {self._seen(values)}"

    def holds(self, outcome: Outcome) -> bool:
        """An outcome meets it.

        Raises:
            ValueError: it cannot be told.
        """
        try:
            return _truth(self._tree, _answer_values(outcome))
        except _Unfit as error:
            raise ValueError(f"{self.text!r} cannot be told: {error}") from error

    def _seen(self, values: Mapping[str, Any]) -> str:
        """What it names, as the answer has it."""
        named = dict.fromkeys(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        shown = [name for name in named if name != "len"]
        return ", ".join(f"{name} is {_short(values[name])}" for name in shown) or "it names nothing"


def _answer_values(outcome: Outcome) -> dict[str, Any]:
    """What the names stand for. ``json`` is not there where the body is none."""
    try:
        body: Any = json.loads(outcome.body) if outcome.body and not outcome.body_is_base64 else _MISSING
    except (ValueError, RecursionError):
        body = _MISSING
    return {
        "status": outcome.status,
        "end": outcome.end.value,
        "body": outcome.body,
        "json": body,
        "headers": dict(outcome.headers),
        "seconds": outcome.seconds,
        "exception": outcome.stack.exception if outcome.stack is not None else None,
        "log": "\n".join(outcome.log),
    }


def parse_expectation(text: str) -> Expectation:
    """Read one.

    Raises:
        UsageError: it is too long, no expression, or holds what the language does not have.
    """
    if len(text) > _LENGTH_MOST:
        raise _refused(text, f"it has over {_LENGTH_MOST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, f"it is no expression: {getattr(error, 'msg', error)}") from error
    _check(tree, text, 0)
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise _refused(text, "it compares nothing")
    return Expectation(text.strip(), tree)


def _check(node: ast.expr, text: str, depth: int) -> None:
    """Raises UsageError for all that is not of the language."""
    if depth > _DEPTH_MOST:
        raise _refused(text, f"it is nested over {_DEPTH_MOST} deep")
    for child in _parts(node, text):
        _check(child, text, depth + 1)


def _parts(node: ast.expr, text: str) -> list[ast.expr]:
    match node:
        case ast.Constant(value=value) if value is None or type(value) in (bool, int, float, str):
            return []
        case ast.Name(id=name) if name in _NAMES:
            return []
        case ast.Name(id=name):
            raise _refused(text, f"there is no {name!r}; names are {', '.join(_NAMES)}")
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return parts
        case ast.Subscript(value=value, slice=ast.Constant(value=key)) if type(key) in (int, str):
            return [value]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(one) in _COMPARED for one in ops
        ):
            return [left, *others]
        case ast.BoolOp(values=parts):
            return parts
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=part):
            return [part]
        case ast.Call(func=ast.Name(id="len"), args=[part], keywords=[]):
            return [part]
    shown = ast.unparse(node)[:_SHOWN]
    raise _refused(text, f"{shown!r} is not of the language of expectations")


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if values[name] is _MISSING:
                raise _Unfit("the answer's body is no JSON")
            return values[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, values) for part in parts]
        case ast.Subscript(value=value, slice=ast.Constant(value=int() | str() as key)):
            return _part(node, _value(value, values), key)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(node, _value(left, values), ops, others, values)
        case ast.BoolOp(op=op, values=parts):
            wanted = isinstance(op, ast.Or)
            return wanted if any(_truth(part, values) is wanted for part in parts) else not wanted
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _truth(part, values)
        case ast.UnaryOp(operand=part):
            return _applied(node, lambda: -_value(part, values))
        case ast.Call(args=[part]):
            return _applied(node, lambda: len(_value(part, values)))
    raise AssertionError(f"{ast.dump(node)} passed the check")


def _truth(node: ast.expr, values: Mapping[str, Any]) -> bool:
    found = _value(node, values)
    if not isinstance(found, bool):
        raise _Unfit(f"{ast.unparse(node)} is {_short(found)}, neither true nor false")
    return found


def _compare(
    node: ast.Compare,
    left: Any,
    ops: list[ast.cmpop],
    others: list[ast.expr],
    values: Mapping[str, Any],
) -> bool:
    for op, other in zip(ops, others, strict=True):
        right = _value(other, values)
        if not _applied(node, functools.partial(_COMPARED[type(op)], left, right)):
            return False
        left = right
    return True


def _part(node: ast.expr, value: Any, key: int | str) -> Any:
    try:
        return value[
            key.lower() if ast.unparse(node).startswith("headers[") and isinstance(key, str) else key
        ]
    except (LookupError, TypeError) as error:
        raise _Unfit(f"{ast.unparse(node)} is not there") from error


def _applied(node: ast.expr, act: Callable[[], Any]) -> Any:
    try:
        return act()
    except TypeError as error:
        raise _Unfit(f"{ast.unparse(node)} cannot be told: {error}") from error


def _short(value: Any) -> str:
    text = "no JSON" if value is _MISSING else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _refused(text: str, cause: str) -> UsageError:
    return UsageError(
        f"{text[:_SHOWN]!r} is no expectation",
        cause=cause,
        remedy='write it as status == 200, or status == 201 and json["id"] > 0 (docs/try.md)',
    )
