"""Scopes of tokens: what a request to the server may do. Which scope implies which is in ``relive.server.credentials``."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Scope"]


class Scope(StrEnum):
    """What a token may be used for."""

    READ = "read"  # lists, details, verdicts
    OPERATE = "operate"  # commit, restore, replay, stop, tag, delete
    MEMORY = "memory"  # what a process had in memory: dumps, exports, frames with locals, exec in a branch
    ADMIN = "admin"  # tokens, signed addresses, audit log
    HOST = "host"  # what acts on the host as the server's user: programs, remotes, keys, files of the caller's choosing
