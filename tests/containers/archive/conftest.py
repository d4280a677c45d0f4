"""Two hosts with a store each, as in the room of remotes: archives go from one to the other."""

from __future__ import annotations

from remotes.conftest import directory_remote, no_credentials, receiver, sender

__all__ = ["directory_remote", "no_credentials", "receiver", "sender"]
