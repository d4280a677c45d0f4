"""Search by words: each has to stand somewhere in the text, be it within a longer one; capital letters are as small ones."""

from __future__ import annotations

from relive.errors import UsageError

__all__ = ["as_sql_text", "searchable", "wanted_words"]

_TEXT_MOST = 4000  # [characters] kept of a text
_WORDS_MOST = 20
_LENGTH_MOST = 1000  # [characters] of all words


def searchable(*parts: str) -> str:
    """What is kept to be searched of a thing's texts."""
    return as_sql_text("\n".join(parts).casefold()[:_TEXT_MOST])


def wanted_words(text: str) -> list[str]:
    """The words that a searcher asks for, as they stand in a ``searchable`` text; raises UsageError for too many."""
    if len(text) > _LENGTH_MOST or len(words := text.casefold().split()) > _WORDS_MOST:
        raise UsageError(
            "that is too much to search for",
            cause=f"{len(text)} characters",
            remedy=f"give at most {_WORDS_MOST} words, together at most {_LENGTH_MOST} characters",
        )
    return [as_sql_text(word) for word in words]


def as_sql_text(text: str) -> str:
    """The text with "?" for what is no Unicode, such as stray bytes of an argument, which SQLite does not take."""
    return text.encode(errors="replace").decode().replace("\0", " ")
