"""What an HTTP answer is expected to be: ``status == 200 and 'eur' in body``; pure.

The syntax is Python's, but nothing is executed by it: there are the names ``status``, ``body`` (text), ``seconds``, ``headers`` and
``json``, literals, subscripts, comparisons, ``in``, ``and``, ``or``, ``not``. Whoever may ask may do no more than compare.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from relive.errors import UsageError

__all__ = ["Expectation", "HttpAnswer"]

_NAMES = ("status", "body", "seconds", "headers", "json")
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}


class HttpAnswer:
    """What came; ``headers``: by their names in lower case."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str, seconds: float) -> None:
        self.status, self.headers, self.body, self.seconds = status, headers, body, seconds

    def value(self, name: str) -> Any:
        """Of one of the names; raises ValueError where the body is no JSON."""
        return json.loads(self.body) if name == "json" else getattr(self, name)


class Expectation:
    """One, read and checked; raises UsageError where it is none."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _unusable(text, str(error)) from None
        for node in ast.walk(self._tree):
            _check(text, node)

    def holds(self, answer: HttpAnswer) -> bool:
        """The answer is as expected.

        Raises:
            ValueError: it has no such part: ``json`` of what is none, an entry that is missing, a comparison that cannot be made.
        """
        try:
            return bool(_value(self._tree, answer))
        except (LookupError, TypeError, RecursionError, ValueError) as error:
            raise ValueError(f"{self._text!r} cannot be told: {type(error).__name__}: {error}") from error


def _unusable(text: str, cause: str) -> UsageError:
    return UsageError(
        f"{text!r} is no expectation",
        cause=cause,
        remedy="write one such as: status == 200 and json['total'] > 0 (names: " + ", ".join(_NAMES) + ")",
    )


def _check(text: str, node: ast.AST) -> None:
    allowed = (
        *(ast.Name, ast.Constant, ast.Subscript, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.List, ast.Tuple),
        *(ast.expr_context, ast.boolop, ast.cmpop, ast.Not, ast.USub),
    )
    if not isinstance(node, allowed):
        raise _unusable(text, f"{type(node).__name__} is not understood")
    if isinstance(node, ast.Name) and node.id not in _NAMES:
        raise _unusable(text, f"there is no {node.id!r}")


def _value(node: ast.expr, answer: HttpAnswer) -> Any:
    match node:
        case ast.Name():
            return answer.value(node.id)
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple():
            return [_value(one, answer) for one in node.elts]
        case ast.Subscript():
            return _value(node.value, answer)[_value(node.slice, answer)]
        case ast.UnaryOp():
            value = _value(node.operand, answer)
            return not value if isinstance(node.op, ast.Not) else -value
        case ast.BoolOp():
            reduce = all if isinstance(node.op, ast.And) else any
            return reduce(_value(one, answer) for one in node.values)
        case ast.Compare():
            left = _value(node.left, answer)
            for op, right_node in zip(node.ops, node.comparators, strict=True):
                right = _value(right_node, answer)
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
    raise TypeError(type(node).__name__)
