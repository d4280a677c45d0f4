"""Publishing a branch's port on the host: a process that listens outside and connects inside.

Bytes are carried from socket to socket; no network device is added, so the branch stays sealed: it cannot open connections
to the outside, only answer those that were published.
"""

from __future__ import annotations

from relive.sandbox.branch import Branch
from relive.sandbox.port_forward import Forwarder

__all__ = ["publish"]


def publish(branch: Branch, host: str, host_port: int, port: int) -> None:
    """Make a branch's port reachable on the host until the branch ends, and note it in its state.

    Raises:
        UsageError: the host's port is taken or may not be used.
        RestoreFailed: the forwarder did not start.
    """
    forwarder = Forwarder(f"/proc/{branch.facts.init}/ns/net", host, host_port, port)
    publication = forwarder.tie_to(branch.facts.init)
    branch.facts = branch.facts.model_copy(update={"publications": [*branch.facts.publications, publication]})
    branch.save()
