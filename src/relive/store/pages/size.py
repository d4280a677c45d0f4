"""The size of a page, apart from all that reads CRIU's images: most commands never do."""

from __future__ import annotations

__all__ = ["PAGE", "page_count"]

PAGE = 4096  # [bytes]


def page_count(size: int) -> int:
    """Pages that so many bytes fill."""
    return -(-size // PAGE)
