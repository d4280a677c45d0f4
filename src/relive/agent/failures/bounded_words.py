"""Words that are told apart, up to a number: whoever may choose them can neither fill the memory nor make ever more cases."""

from __future__ import annotations

__all__ = ["BoundedWords"]


class BoundedWords:
    """The first words that came, and no others.

    Args:
        most: so many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._words: set[str] = set()

    def keeps(self, word: str) -> bool:
        """Whether a word is one of them, by now or before; the answer to the same word is the same ever after."""
        if word not in self._words and len(self._words) < self._most:
            self._words.add(word)
        return word in self._words
