"""What a refusal of a micro-commit is about, in words: which process, and what its descriptor stands for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from relive.checkpoint.micro_record import FullCommitNeeded, Seen
from relive.kernel.procfs import name_of

__all__ = ["naming_process", "refusal_words"]

_DESCRIPTOR = re.compile(r"\bdescriptor (\d+)\b")


@contextlib.contextmanager
def naming_process(seen: Seen, name: Callable[[int], str | None] = name_of) -> Iterator[None]:
    """Have what is raised within say that it is about this process; ``name``: of a pid."""
    try:
        yield
    except FullCommitNeeded as refusal:
        raise type(refusal)(refusal_words(str(refusal), seen, name(seen.pid))) from refusal


def refusal_words(reason: str, seen: Seen, name: str | None) -> str:
    """The reason with the process, and with what the first descriptor in it stands for, unless it says so."""
    who = f"{name or 'a process'} (pid {seen.inside})"
    found = _DESCRIPTOR.search(reason)
    if found is None:
        return f"{who}: {reason}"
    kind = _kind_of(seen, int(found[1]))
    of = f"{found[0]} of {who}"
    return f"{reason[: found.start()]}{of}{f', {kind},' if kind and kind not in reason else ''}{reason[found.end() :]}"


def _kind_of(seen: Seen, number: int) -> str | None:
    connection = next((one for one in seen.connections if one.descriptor == number), None)
    if connection is not None:
        return connection.kind
    for line in seen.lines:
        head, told, goal = line.partition(" goal ")
        if told and head.startswith(f"fd {number} "):
            return goal
    return None
