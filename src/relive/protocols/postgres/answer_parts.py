"""The answer of one call in parts, one for each thing that was asked: so it can be given in another order, or to other names.

It is what ``Call.extra["parts"]`` holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relive.protocols.call import Timed
from relive.protocols.postgres.framing import BackendFramer
from relive.protocols.postgres.messages import Column, build, row_description
from relive.protocols.postgres.statement_state import Role

__all__ = ["Parts", "TrailingMessages", "body_of", "without_rows_described"]


@dataclass(frozen=True, slots=True)
class TrailingMessages:
    """What came unasked after an answer, and the end of the connection where it was idle then.

    Attributes:
        ended: "closed" or "reset" by the server, None where it did not end there; after_ns: when.
    """

    said: tuple[Timed, ...] = ()
    ended: str | None = None
    after_ns: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer in parts.

    Attributes:
        answers: the bytes for each role, as they came. For SYNC with ReadyForQuery, and an error before it where the commit failed.
        copied: of EXECUTE, how many bytes come before the server waits for what is copied; None without COPY IN.
        failed: the role that was answered by an error.
        stops: the role at which the answer stopped before it was whole (see ``Call.end``).
        before, after: state of ReadyForQuery, where this call was alone between two of them; else "".
        tags: of its CommandCompletes.
        columns: of the first result; None where they are not known, empty where there are none.
        types: of the statement's parameters, None where they were not described.
        simple: of a Query: its answer has the row descriptions in it.
        ready_at: of SYNC, the offset of ReadyForQuery's state; None where it is not in it.
        cut: some of it was not kept.
    """

    answers: Mapping[Role, tuple[Timed, ...]] = field(default_factory=dict)
    copied: int | None = None
    failed: Role | None = None
    stops: Role | None = None
    before: str = ""
    after: str = ""
    tags: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    types: tuple[int, ...] | None = None
    simple: bool = False
    ready_at: int | None = None
    cut: bool = False
    trail: TrailingMessages = TrailingMessages()

    def described(self, formats: tuple[int, ...]) -> bytes | None:
        """RowDescription or NoData, with formats as a Bind asked for them (none: text); None where it is not known."""
        if self.columns is None:
            return None
        return row_description(self.columns, formats) if self.columns else build("n")


def body_of(chunks: tuple[Timed, ...]) -> bytes:
    """The bytes of chunks."""
    return b"".join(chunk.data for chunk in chunks)


def without_rows_described(chunks: tuple[Timed, ...]) -> tuple[Timed, ...]:
    """A Query's answer as an Execute has it: RowDescription is left out; all at the time of the first chunk."""
    kept = b"".join(
        build(message.kind, message.body)
        for message in BackendFramer().feed(body_of(chunks))
        if message.kind != "T"
    )
    return (Timed(chunks[0].after_ns if chunks else 0, kept),)
