"""A body as it is kept in a model: text where it is text, else base64, bounded."""

from __future__ import annotations

import base64

from relive.model.value import Value

__all__ = ["ReportBody"]

_MOST = 64 << 10  # [bytes] of one body; the whole one stays in the recording


class ReportBody(Value):
    """A body, or its beginning.

    Attributes:
        text: None when it is no UTF-8 text; then base64 has it.
        size: [bytes] of the whole, as far as known; cut: how many of them are missing here.
        file: name below ``bodies`` in the recording inside, where it lies there.
    """

    text: str | None = None
    base64: str | None = None
    size: int = 0
    cut: int = 0
    file: str | None = None

    @classmethod
    def of(cls, data: bytes, *, size: int | None = None, file: str | None = None) -> ReportBody:
        """From bytes that were kept of a body of ``size`` bytes (without, that is all of it)."""
        kept = data[:_MOST]
        whole = len(data) if size is None else max(size, len(data))
        text = _text(kept, torn=len(kept) < whole)
        return cls(
            text=text,
            base64=base64.b64encode(kept).decode("ascii") if text is None else None,
            size=whole,
            cut=whole - len(kept),
            file=file,
        )

    @property
    def is_empty(self) -> bool:
        """There was none."""
        return self.size == 0

    def words(self) -> str:
        """For people: the text, or how long it is; what is missing is said."""
        missing = f" … {self.cut} bytes more" if self.cut else ""
        if self.text is not None:
            return self.text + missing
        return f"({self.size} bytes that are no text)"


def _text(data: bytes, *, torn: bool) -> str | None:
    for missing in range(4 if torn else 1):  # a cut may go through a character
        try:
            return data[: len(data) - missing].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None
