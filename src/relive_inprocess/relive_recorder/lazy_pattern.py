"""Regular expressions that cost nothing until they are used."""

import re
from typing import Any

__all__ = ["LazyPattern"]


class LazyPattern:
    """A regular expression that is compiled when it is first used: all of them together take milliseconds of each start."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._text, self._flags)
        for method in ("finditer", "fullmatch", "match", "search", "sub"):
            self.__dict__[method] = getattr(compiled, method)
        return self.__dict__[name]
