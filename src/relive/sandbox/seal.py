"""The seal of a sandbox: that it has no way out, and the figures that prove nothing left.

A branch lives in a network namespace whose only device is loopback. There is no route to anywhere else, so a packet for
elsewhere is refused in the kernel before it exists, and counted.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading

from relive.errors import SealBroken
from relive.kernel.procfs import read_file
from relive.model.value import Value

__all__ = ["Seal", "check_sealed", "read_seal"]

_REFUSED_6 = re.compile(rb"^Ip6OutNoRoutes\s+(\d+)", re.MULTILINE)


class Seal(Value):
    """Counters of a sandbox's network namespace.

    Attributes:
        devices: network devices other than loopback; must be empty.
        packets_left: packets sent through them; 0 as there are none.
        refused: attempts to reach an address outside, refused for want of a route (Ip/Ip6 OutNoRoutes).
    """

    devices: list[str]
    packets_left: int
    refused: int

    @property
    def is_intact(self) -> bool:
        """Nothing could leave and nothing did."""
        return not self.devices and self.packets_left == 0


def read_seal(pid: int | str) -> Seal:
    """The counters of the network namespace of a process; raises OSError when it is gone."""
    devices, packets = [], 0
    for line in read_file(f"/proc/{pid}/net/dev").decode().splitlines()[2:]:
        name, _, figures = line.partition(":")
        if name.strip() != "lo":
            devices.append(name.strip())
            packets += int(figures.split()[9])
    return Seal(devices=devices, packets_left=packets, refused=_refused(pid))


def _refused(pid: int | str) -> int:
    lines = read_file(f"/proc/{pid}/net/snmp").decode().splitlines()
    names, values = next((a, b) for a, b in itertools.pairwise(lines) if a.startswith("Ip:"))
    count = int(dict(zip(names.split(), values.split(), strict=True)).get("OutNoRoutes", "0"))
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        found = _REFUSED_6.search(read_file(f"/proc/{pid}/net/snmp6"))
        count += int(found[1]) if found else 0
    return count


def check_sealed() -> None:
    """Prove from inside, before anything is restored, that the calling thread's network namespace has no way out.

    Raises:
        SealBroken: a device other than loopback exists, or an outside address can be reached.
    """
    seal = read_seal("thread-self")
    if seal.devices:
        raise SealBroken("the sandbox is not sealed", cause=f"it has the network device {seal.devices[0]}")
    # 192.0.2.1 is kept for documentation (RFC 5737): no host has it, and a datagram socket sends nothing on connect().
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return
    raise SealBroken(
        "the sandbox is not sealed",
        cause=f"its network namespace has a route out (thread {threading.get_native_id()})",
    )
