"""What is declared of every face, for tests that walk it: fields with a grammar, choices, the least that is valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import AfterValidator

from relive.operations.catalogue import OPERATIONS
from relive.operations.operation import Operation

__all__ = ["NO_WORD", "choices_of", "least", "with_grammar"]

NO_WORD = "no such"  # is in no grammar and in no choice
_READ = {"expect": "status == 200", "at": "app.py:1"}  # what has to be there and has a grammar


def with_grammar() -> Iterator[tuple[Operation[Any, Any], str, Any]]:
    """(operation, field, a value that no grammar knows) of each field of any params that has one."""
    for operation in OPERATIONS.values():
        for name, field in operation.params.model_fields.items():
            if any(isinstance(one, AfterValidator) for one in field.metadata):
                yield operation, name, [NO_WORD] if str(field.annotation).startswith("list") else NO_WORD


def _plain(schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Without references, and of alternatives the first that is not null."""
    while True:
        if "$ref" in schema:
            schema = named[schema["$ref"].rpartition("/")[2]]
        elif "allOf" in schema or "anyOf" in schema:
            some = schema.get("allOf") or [one for one in schema["anyOf"] if one.get("type") != "null"]
            schema = some[0]
        else:
            return schema


def least(schema: dict[str, Any], named: dict[str, Any]) -> Any:
    """A small value that a JSON schema takes: of an object, only what has to be there.

    Args:
        named: the schemas that references lead to.
    """
    schema = _plain(schema, named)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        required = schema.get("required", ())
        return {name: _READ.get(name, least(schema["properties"][name], named)) for name in required}
    if kind == "array":
        return [least(schema["items"], named)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "boolean":
        return False
    return "1" * max(1, schema.get("minLength", 1))


def choices_of(schema: dict[str, Any], named: dict[str, Any]) -> list[str]:
    """Properties of an object that take one word of a few."""
    properties = _plain(schema, named).get("properties", {})
    return [name for name, one in properties.items() if "enum" in _plain(one, named)]
