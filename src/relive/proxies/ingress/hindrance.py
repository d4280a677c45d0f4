"""Whether packets of a port can be taken here, asked in microseconds; ``doctor.probes.packets`` tries it."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from relive.proxies.ingress.options import CAPTURE, RELAY

__all__ = ["packets_hindrance"]

_PACKET_VERSION, _PACKET_RX_RING = 10, 5  # options of SOL_PACKET
_SOL_PACKET = 263
_TPACKET_V3 = 2
_BLOCK, _FRAME = 1 << 16, 2048  # [bytes]


def packets_hindrance(tools: Path) -> str | None:
    """Why ``relive-capture`` could not take packets in this network; None: nothing is in its way.

    Args:
        tools: where the programs are that set-up built.
    """
    if not os.access(tools / CAPTURE, os.X_OK):
        return f"there is no {CAPTURE}; run `make setup`"
    if not (tools / RELAY).exists():
        return f"there is no {RELAY}; run `make setup`"
    try:
        with socket.socket(
            socket.AF_PACKET, socket.SOCK_DGRAM, 0
        ) as probe:  # bound to nothing: no packet comes
            probe.setsockopt(_SOL_PACKET, _PACKET_VERSION, struct.pack("=I", _TPACKET_V3))
            ring = struct.pack("=7I", _BLOCK, 1, _FRAME, _BLOCK // _FRAME, 1, 0, 0)
            probe.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
    except OSError as error:
        return f"AF_PACKET: {error.strerror}"
    return None
