"""Trouble of what protects a service."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from relive.errors import ReliveError

__all__ = ["Trouble"]


class Trouble(BaseModel):
    """A part of what protects a service that does not work now.

    Attributes:
        part: "agent", "commits", "policy" and "requests" (what asks for them), "failures", "memory", "proxy", "egress",
            "exceptions", "inside", "output", "bounding" (of output and logs), "supervisor", "health" or "retention".
        since_wall_ns: of the first failure in a row; None where nobody knows.
        times: failures in a row.
        code, message, cause, remedy: of the last one, as in ``ReliveError.as_json``.
    """

    model_config = ConfigDict(frozen=True)

    part: str
    since_wall_ns: int | None
    times: int
    code: str
    message: str
    cause: str | None
    remedy: str | None

    @classmethod
    def of(cls, part: str, since_wall_ns: int | None, times: int, error: ReliveError) -> Trouble:
        """With the words of an error."""
        return cls(
            part=part,
            since_wall_ns=since_wall_ns,
            times=times,
            code=error.code,
            message=error.message,
            cause=error.cause,
            remedy=error.remedy,
        )
