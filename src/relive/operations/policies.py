"""What shall become of calls without a recorded answer, as texts say it."""

from __future__ import annotations

from relive.errors import UsageError
from relive.protocols.known import POLICIES
from relive.record.events import EventKind

__all__ = ["parse_policy"]


def parse_policy(text: str, *, has_stubs: bool = False) -> tuple[str, str]:
    """(kind or "*", what becomes of a miss) of one ``--on-miss``; raises UsageError.

    Args:
        has_stubs: the words of stubs are understood too, see ``protocols.known``.
    """
    kind, _, what = text.replace(":", "=").rpartition("=")
    kind = kind or "*"
    own = POLICIES if has_stubs else {}
    words = {word for one, some in own.items() for word in some if kind in ("*", one)}
    if what not in {"fail", "pass"} | words or (kind != "*" and kind not in list(EventKind)):
        known = ", ".join(f"{one}={word}" for one, some in own.items() for word in some)
        raise UsageError(
            f"--on-miss cannot be {text!r}",
            remedy="write fail, pass, or KIND=pass such as http-call=pass"
            + (f"; what stubs can do: {known}" if known else ""),
        )
    return kind, what
