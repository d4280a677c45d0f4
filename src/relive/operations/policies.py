"""What may differ in a replay, and what shall become of calls without a recorded answer, as texts say it.

The types at the end are those of the fields by which options of replays ask for it, with their text and bounds.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from relive.errors import UsageError
from relive.operations.grammars import each_written_as
from relive.protocols.matching import path_steps
from relive.protocols.registry import POLICIES
from relive.recording.events import EventKind
from relive.replay.plan import Pace
from relive.replay.sequence import COMPARED_KINDS

__all__ = [
    "IgnoredDifferences",
    "MissPolicies",
    "RequestLimit",
    "SentPace",
    "check_ignore",
    "parse_policy",
    "parse_stub_policy",
]

_KINDS = "|".join(map(re.escape, COMPARED_KINDS))
_IGNORE = re.compile(
    rf"(header|query):.+|(?:body|event:(?:{_KINDS}))(?::(?P<whole_or_part>\$.*))?|(?P<part>\$.+)|method|host|path|query|header",
    re.DOTALL,
)


# Answered by the recorder inside: of other calls (files, programs, SQLite) there is no miss, since they are made in the branch.
_ANSWERED_INSIDE = frozenset(
    kind.value for kind in (EventKind.QUERY, EventKind.HTTP_CALL, EventKind.REDIS_COMMAND, EventKind.S3_CALL)
)


def check_ignore(text: str, *, inside_only: bool = False) -> str:
    """One ``--ignore`` as it was given; raises UsageError for what names nothing that could differ.

    Args:
        inside_only: neither answers nor questions at a border are compared, only what happened inside the service.
    """
    if inside_only and not text.startswith("event:"):
        raise UsageError(
            f"--ignore cannot be {text!r}",
            cause="only what happened inside the service is compared",
            remedy="write event:KIND or event:KIND:PATH such as event:query:$.asked",
        )
    found = _IGNORE.fullmatch(text)
    path = (found["part"] or found["whole_or_part"]) if found is not None else None
    if found is None or (path not in (None, "$") and not path_steps(path)):
        raise UsageError(
            f"--ignore cannot be {text!r}",
            cause="it names nothing that is compared",
            remedy="write header:NAME, query:NAME, body:PATH such as body:$.id, event:KIND or event:KIND:PATH such as "
            "event:query:$.asked, or a path such as $.parameters[0]",
        )
    return text


def parse_policy(text: str, *, has_stubs: bool = False) -> tuple[str, str]:
    """(kind or "*", what becomes of a miss) of one ``--on-miss``; raises UsageError.

    Args:
        has_stubs: the words of stubs are understood too, see ``protocols.registry``.
    """
    kind, _, what = text.replace(":", "=").rpartition("=")
    kind = kind or "*"
    own = POLICIES if has_stubs else {}
    words = {word for one, some in own.items() for word in some if kind in ("*", one)}
    words |= {"fail", "pass"} if kind == "*" or kind in _ANSWERED_INSIDE else set()
    if what not in words:
        known = ", ".join(f"{one}={word}" for one, some in own.items() for word in some)
        raise UsageError(
            f"--on-miss cannot be {text!r}",
            remedy="write fail, pass, or KIND=pass such as http-call=pass"
            + (f"; what stubs can do: {known}" if known else ""),
        )
    return kind, what


def parse_stub_policy(text: str) -> tuple[str, str]:
    """``parse_policy`` where stubs answer."""
    return parse_policy(text, has_stubs=True)


SentPace = Annotated[Pace, Field(description="Send again at the recorded pace, or as fast as order allows")]
IgnoredDifferences = Annotated[
    list[str], each_written_as(check_ignore), Field(description="What may differ, as for `relive replay`")
]
MissPolicies = Annotated[
    list[str],
    each_written_as(parse_stub_policy),
    Field(description="A call without a recorded answer: fail or pass, or KIND=pass such as http-call=pass"),
]
RequestLimit = Annotated[float | None, Field(ge=0.1, le=86_400, description="Seconds for the judged request")]
