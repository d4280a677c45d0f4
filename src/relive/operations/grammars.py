"""Fields of params that have a grammar of their own: what it does not know is refused when the params are made, in each face alike.

A word that is let through until the work begins would be an error of a task that was taken on already, or of none at all.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import AfterValidator

__all__ = ["each_written_as", "written_as"]


def written_as(parse: Callable[[str], object]) -> AfterValidator:
    """For a text, or None: ``Annotated[str, written_as(parse_speed)]``. What ``parse`` raises, making the params raises."""

    def check(text: str | None) -> str | None:
        if text is not None:
            parse(text)
        return text

    return AfterValidator(check)


def each_written_as(parse: Callable[[str], object]) -> AfterValidator:
    """The same for a list of texts."""

    def check(texts: list[str]) -> list[str]:
        for text in texts:
            parse(text)
        return texts

    return AfterValidator(check)
