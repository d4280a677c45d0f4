"""Options and arguments of a command that follow from the fields of the operation's parameters: each is declared once, there.

A field's description is the help, its bounds are the limits, and its default is the default. Which fields are arguments, and
other words than ``--its-name``, are the command's own affair.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import annotated_types
import typer
from pydantic.fields import FieldInfo

from relive.operations.operation import Params

__all__ = ["from_params"]

W = TypeVar("W", bound=Params)


def from_params(
    kind: type[W],
    *,
    arguments: Collection[str] = (),
    words: Mapping[str, tuple[str, ...]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function whose first parameter is the operation's; those that follow are options as typer has them.

    Args:
        arguments: fields that are given by their place, in that order; the others are options.
        words: of options that are not called as their field, with dashes.

    The command raises pydantic's ValidationError for a value that is out of bounds typer does not know.
    """
    fields = kind.model_fields
    unknown = {*arguments, *(words or {})} - set(fields)
    assert not unknown, f"{kind.__name__} has no {unknown}"

    def make(function: Callable[..., None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            asked = {name: given.pop(name) for name in fields}
            function(kind(**{name: value for name, value in asked.items() if value is not None}), **given)

        order = [*arguments, *(name for name in fields if name not in arguments)]
        derived = [
            _parameter(name, fields[name], is_argument=name in arguments, words=(words or {}).get(name, ()))
            for name in order
        ]
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*derived, *own)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__module__ = function.__module__
        return command

    return make


def _parameter(
    name: str, field: FieldInfo, *, is_argument: bool, words: tuple[str, ...]
) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
    annotation: Any = field.annotation
    if default == [] and not field.is_required():  # typer shows an empty list as a default
        annotation, default = Union[annotation, None], None  # noqa: UP007 - of a value, not of a name
    least, most = _bounds(field, annotation)
    if is_argument:
        parameter: Any = typer.Argument(help=field.description, min=least, max=most)
    else:
        # A switch that is off has no other way to say so.
        given = words or ((f"--{name.replace('_', '-')}",) if default is False else ())
        parameter = typer.Option(*given, help=field.description, min=least, max=most)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, parameter]
    )


def _bounds(field: FieldInfo, annotation: Any) -> tuple[float | None, float | None]:
    """Of a number, both inclusive; others the params check themselves."""
    plain = [one for one in get_args(annotation) if one is not type(None)]
    is_union = get_origin(annotation) in (Union, UnionType)
    if (plain[0] if is_union and len(plain) == 1 else annotation) not in (int, float):
        return None, None
    least = next((one.ge for one in field.metadata if isinstance(one, annotated_types.Ge)), None)
    most = next((one.le for one in field.metadata if isinstance(one, annotated_types.Le)), None)
    return least, most  # type: ignore[return-value]  # pydantic takes numbers only
