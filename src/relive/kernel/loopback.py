"""The loopback device of the caller's network namespace: up, with names and addresses (netdevice(7), rtnetlink(7))."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["OWN_MTU", "add_address", "add_addresses", "add_names", "addresses", "bring_up", "set_mtu"]

OWN_MTU = 65536
"""That of ``lo`` in a new network namespace [bytes]."""

_SIOCSIFFLAGS, _SIOCSIFMTU = 0x8914, 0x8922
_IFF_UP_RUNNING = 0x41
_RTM_NEWADDR = 20
_RTM_GETADDR = 22
_RTM_NEWLINKPROP = 108
_IFLA_PROP_LIST, _IFLA_ALT_IFNAME, _NLA_F_NESTED = 52, 53, 0x8000
_NLM_F_REQUEST_DUMP = 0x1 | 0x300
_NLMSG_DONE = 3
_NLM_F_REQUEST_ACK_CREATE = 0x1 | 0x4 | 0x400
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFA_F_NODAD = 0x02
_EEXIST = 17
_LOOPBACK_INDEX = 1
_RTF_LOCAL = 0x80000000
_USABLE_WITHIN = 2.0  # [s]


def bring_up() -> None:
    """Bring ``lo`` up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP_RUNNING))


def set_mtu(size: int) -> None:
    """How many bytes a packet may have on ``lo``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", b"lo", size))


def add_address(address: str) -> None:
    """Make an IPv4 or IPv6 address local by giving it to ``lo``; an address that is there already is no error.

    As ``add_addresses`` for one.
    """
    add_addresses([address])


def add_addresses(addresses: Iterable[str]) -> None:
    """Make IPv4 and IPv6 addresses local by giving them to ``lo``; what is there already is no error.

    An IPv4 address written as an IPv6 one (::ffff:192.0.2.1), as sockets for both have it, is the IPv4 address.

    Raises:
        OSError: the kernel refused it (EPERM without CAP_NET_ADMIN).
        ValueError: a text is no address.
    """
    added = [_add(address) for address in addresses]
    # Not one after the other: the kernel takes a few milliseconds for each, but for all at a time.
    _wait_until_local({one for one in added if isinstance(one, ipaddress.IPv6Address)})


def _add(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    packed = parsed.packed
    body = struct.pack("BBBBi", family, parsed.max_prefixlen, _IFA_F_NODAD, 0, _LOOPBACK_INDEX)
    for attribute in (_IFA_LOCAL, _IFA_ADDRESS):
        body += _attribute(attribute, packed)
    _create(_RTM_NEWADDR, body, address)
    return parsed


def add_names(names: Iterable[bytes]) -> None:
    """Give ``lo`` other names: a socket is then bound to it by each (SO_BINDTODEVICE). Names of devices that are there stay theirs.

    Raises:
        OSError: the kernel refused one (EPERM without CAP_NET_ADMIN, EOPNOTSUPP before Linux 5.5, EINVAL for what is no name).
    """
    for name in names:
        inner = _attribute(_IFLA_ALT_IFNAME, name + b"\0")
        body = struct.pack("BxHiII", socket.AF_UNSPEC, 0, _LOOPBACK_INDEX, 0, 0)
        body += _attribute(_IFLA_PROP_LIST | _NLA_F_NESTED, inner)
        _create(_RTM_NEWLINKPROP, body, repr(name))


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _create(kind: int, body: bytes, what: str) -> None:
    """Ask the kernel for it; that it is there already is no error."""
    message = struct.pack("IHHII", 16 + len(body), kind, _NLM_F_REQUEST_ACK_CREATE, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as channel:
        channel.sendto(message, (0, 0))
        (error,) = struct.unpack_from("i", channel.recv(4096), 16)
    if error not in (0, -_EEXIST):
        raise OSError(-error, f"cannot give {what} to lo: {os.strerror(-error)}")


def addresses() -> set[str]:
    """All addresses that devices of the caller's network namespace have, ``lo``'s among them."""
    found: set[str] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as channel:
        body = struct.pack("BBBBi", socket.AF_UNSPEC, 0, 0, 0, 0)
        channel.send(struct.pack("IHHII", 16 + len(body), _RTM_GETADDR, _NLM_F_REQUEST_DUMP, 1, 0) + body)
        while not _read_addresses(channel.recv(1 << 16), found):
            pass
    return found


def _read_addresses(data: bytes, found: set[str]) -> bool:
    """Read one packet of the answer; True when it was the last."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("IH", data, offset)
        if kind == _NLMSG_DONE:
            return True
        family, place = data[offset + 16], offset + 24  # behind struct ifaddrmsg
        texts = {}
        while place + 4 <= offset + length:
            size, attribute = struct.unpack_from("HH", data, place)
            if attribute in (_IFA_LOCAL, _IFA_ADDRESS):
                texts[attribute] = socket.inet_ntop(family, data[place + 4 : place + size])
            place += (size + 3) & ~3
        if texts:
            found.add(texts.get(_IFA_LOCAL) or texts[_IFA_ADDRESS])
        offset += (length + 3) & ~3
    return False


def _wait_until_local(addresses: set[ipaddress.IPv6Address]) -> None:
    """The kernel makes an IPv6 address usable a moment after it has taken it: a work queue adds its local route.

    The route of its prefix is there before. A SYN that takes that one is lost, and its retransmission a second later is
    answered with ENETUNREACH.
    """
    wanted = {address.packed.hex() for address in addresses}
    until = time.monotonic() + _USABLE_WITHIN
    while wanted:
        wanted -= _local_routes(Path("/proc/thread-self/net/ipv6_route").read_text())
        if wanted and time.monotonic() > until:
            missing = ipaddress.IPv6Address(bytes.fromhex(min(wanted)))
            raise OSError(errno.ETIMEDOUT, f"{missing} was given to lo and has no route")
        if wanted:
            time.sleep(0.001)


def _local_routes(table: str) -> set[str]:
    """Columns of ipv6_route: destination, prefix length, source, its length, next hop, metric, users, uses, flags, device."""
    rows = (line.split() for line in table.splitlines())
    return {row[0] for row in rows if row[1] == "80" and int(row[8], 16) & _RTF_LOCAL}
