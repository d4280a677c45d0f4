"""The public port of a service, which is kept for as long as that is looked after: in a capsule by process 1."""

from __future__ import annotations

import socket

from relive.model.capsule import CapsuleSpec
from relive.model.life_paths import LifePaths
from relive.proxies.listeners import bind_control, bind_listener, resolve
from relive.sandbox.spawn import Front

__all__ = ["open_front", "written_address"]


def open_front(spec: CapsuleSpec, paths: LifePaths, listener: socket.socket | None = None) -> Front | None:
    """Listen where clients of the service connect; None where no recording proxy stands before it.

    Args:
        listener: one that listens there already.

    Raises:
        CapsuleStartFailed: somebody else listens there.
        UsageError: the service's host is not known.
    """
    if not spec.has_front or spec.listen is None or spec.upstream is None:
        return None
    found = resolve(written_address(spec.upstream))
    # A service mostly listens at the IPv4 address of "localhost".
    _, address = next((one for one in found if one[0] == socket.AF_INET), found[0])
    made = listener or bind_listener(written_address(spec.listen))
    try:
        return Front(made, bind_control(paths.front_socket), (address[0], spec.upstream[1]))
    except BaseException:
        if listener is None:
            made.close()
        raise


def written_address(pair: tuple[str, int]) -> str:
    """As command lines have it: ``HOST:PORT`` or ``[V6]:PORT``."""
    host, port = pair
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
