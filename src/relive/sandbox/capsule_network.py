"""The network of a capsule whose calls are recorded: it looks like the host's, and behind it is nobody but the recorder.

How it works:

1. The namespace has one device, ``lo``, with the host's addresses. Each route of the host is a *local* route on it, so that
   ``connect`` finds a way, with the same own address, exactly where it would on the host.
2. The first packet of each TCP connection waits in a netfilter queue until the recorder, which lives in the host's network, has
   made the real connection or seen it fail. A failure is answered by a packet that makes the service's ``connect`` fail with the
   same error. Otherwise the packet goes on to the recorder's entrance (TPROXY), whose end then has the destination's address: both
   ends are real sockets in this namespace, with the true addresses, without address translation.
3. Datagrams are taken from the queue and sent from a socket of the host; answers are put in with a raw socket.
4. What the service itself listens on is reached directly.

``relive.proxies.egress.recorder`` is the recorder. What differs for a service stands in docs/egress.md.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.errors import HostIncapable, ToolMissing
from relive.kernel import loopback
from relive.proxies.marks import ENTRANCE, QUEUE, Mark

__all__ = ["HostNetwork", "raise_border"]

_NET = Path("/proc/sys/net")
# What a new network namespace does not take over from the host and a service can notice.
_TAKEN_OVER = (
    "core/somaxconn",
    "core/rmem_default",
    "core/wmem_default",
    "ipv4/ip_default_ttl",
    "ipv4/ip_local_port_range",
    "ipv4/ip_local_reserved_ports",
    "ipv4/ip_nonlocal_bind",
    "ipv4/ip_unprivileged_port_start",
    "ipv4/ping_group_range",
    "ipv4/tcp_fastopen",
    "ipv4/tcp_fin_timeout",
    "ipv4/tcp_keepalive_intvl",
    "ipv4/tcp_keepalive_probes",
    "ipv4/tcp_keepalive_time",
    "ipv4/tcp_max_syn_backlog",
    "ipv4/tcp_retries2",
    "ipv4/tcp_rmem",
    "ipv4/tcp_syn_retries",
    "ipv4/tcp_tw_reuse",
    "ipv4/tcp_wmem",
    "ipv6/bindv6only",
    "ipv6/conf/all/disable_ipv6",
)
# Refusals are answers of ours: the kernel would send only so many of them in a second.
_OWN_WAYS = {"ipv4/icmp_ratemask": "0", "ipv6/icmp/ratelimit": "0"}
_ORDINARY_RULES = 3  # local, main, default
_REFUSING = frozenset({"unreachable", "blackhole", "prohibit"})
_PACKAGES = {"ip": "iproute2", "iptables-restore": "iptables", "ip6tables-restore": "iptables"}


@dataclass(frozen=True, slots=True)
class HostRoute:
    """A way that the host has. ``source``: own address that is used on it, None where the kernel chooses."""

    family: int
    destination: str
    kind: str
    source: str | None

    @property
    def order(self) -> str:
        """As a line of ``ip -batch``."""
        if self.kind in _REFUSING:
            return f"route replace {self.kind} {self.destination} table local"
        source = f" src {self.source}" if self.source is not None else ""
        return f"route replace local {self.destination} dev lo{source}"


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """What a capsule's network is made like. Read it in the host's namespace.

    Attributes:
        addresses: own ones that are not bound to a device's link.
    """

    addresses: tuple[str, ...]
    routes: tuple[HostRoute, ...]
    settings: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls) -> HostNetwork:
        """Look at the caller's network namespace.

        Raises:
            ToolMissing: there is no ``ip``.
        """
        devices: list[dict[str, Any]] = _asked("addr")
        found: list[tuple[str, str]] = [
            (str(one["local"]), str(device["ifname"]))
            for device in devices
            for one in device.get("addr_info", ())
            if one.get("scope") != "link" and "local" in one
        ]
        first = {(device, ":" in address): address for address, device in reversed(found)}
        routes = [
            *_routes(4, _asked("-4", "route", "show", "table", "main"), first),
            *_routes(6, _asked("-6", "route", "show", "table", "main"), first),
        ]
        for family, everything in ((4, "0.0.0.0/0"), (6, "::/0")):
            has_rules = len(_asked(f"-{family}", "rule")) > (_ORDINARY_RULES if family == 4 else 2)
            if has_rules and not any(route.destination == everything for route in routes):
                routes.append(HostRoute(family, everything, "unicast", None))  # other tables may have a way
        return cls(
            tuple(dict.fromkeys(address for address, _ in found)),
            tuple(routes),
            tuple((name, text) for name in _TAKEN_OVER if (text := _setting(name)) is not None),
        )


def raise_border(host: HostNetwork) -> None:
    """Furnish the caller's new network namespace, in which there is nothing yet.

    Raises:
        HostIncapable: the kernel lacks something that this needs.
        ToolMissing: a program is not installed.
    """
    for name, text in (*host.settings, *_OWN_WAYS.items()):
        with contextlib.suppress(OSError):  # not every kernel lets a namespace have its own
            (_NET / name).write_text(text)
    loopback.bring_up()
    for address in set(host.addresses) - {"127.0.0.1", "::1"}:  # those are there since it came up
        loopback.add_address(address)
    orders = "".join(f"{route.order}\n" for route in host.routes if route.family == 4)
    _feed(["ip", "-4", "-batch", "-"], orders)
    orders = "".join(f"{route.order}\n" for route in host.routes if route.family == 6)
    _feed(["ip", "-6", "-batch", "-"], orders)
    _feed(["iptables-restore", "-w", "5"], rules(host.addresses, six=False))
    if Path("/proc/net/if_inet6").exists():
        _feed(["ip6tables-restore", "-w", "5"], rules(host.addresses, six=True))


def rules(addresses: Iterable[str], *, six: bool) -> str:
    """The border's rules, for ``iptables-restore``."""
    echo = "-p ipv6-icmp --icmpv6-type echo-request" if six else "-p icmp --icmp-type echo-request"
    prefix = "icmp6" if six else "icmp"
    no_network = f"{prefix}-no-route" if six else f"{prefix}-net-unreachable"
    no_host = f"{prefix}-addr-unreachable" if six else f"{prefix}-host-unreachable"
    forbidden = f"{prefix}-adm-prohibited" if six else f"{prefix}-admin-prohibited"
    own = [address for address in addresses if (":" in address) is six]
    own.append("::1" if six else "127.0.0.0/8")
    lines = [
        "*raw",
        f"-A OUTPUT -m mark --mark {Mark.OWN:#x} -j ACCEPT",
        f"-A OUTPUT -p tcp --syn -j NFQUEUE --queue-num {QUEUE}",
        f"-A OUTPUT -p udp -j NFQUEUE --queue-num {QUEUE}",
        "COMMIT",
        "*mangle",
        f"-A PREROUTING -p tcp --syn -m mark --mark {Mark.RECORDED:#x} -j TPROXY"
        f" --on-ip {'::1' if six else '127.0.0.1'} --on-port {ENTRANCE}",
        "COMMIT",
        "*filter",
        f"-A OUTPUT -p tcp -m mark --mark {Mark.REFUSED:#x} -j REJECT --reject-with tcp-reset",
        f"-A OUTPUT -m mark --mark {Mark.NO_NETWORK:#x} -j REJECT --reject-with {no_network}",
        f"-A OUTPUT -m mark --mark {Mark.NO_HOST:#x} -j REJECT --reject-with {no_host}",
        f"-A OUTPUT -m mark --mark {Mark.FORBIDDEN:#x} -j REJECT --reject-with {forbidden}",
        *(f"-A OUTPUT -d {address} -j ACCEPT" for address in own),
        # Every address is local here: without this rule all the world would answer to a ping.
        f"-A OUTPUT {echo} -j REJECT --reject-with {forbidden}",
        "-A OUTPUT -p tcp -j ACCEPT",
        "-A OUTPUT -p udp -j ACCEPT",
        f"-A OUTPUT -p {'ipv6-icmp' if six else 'icmp'} -j ACCEPT",
        f"-A OUTPUT -j REJECT --reject-with {forbidden}",
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def _routes(
    family: int, answers: Sequence[dict[str, Any]], first: dict[tuple[str, bool], str]
) -> list[HostRoute]:
    """Those that lead somewhere, the best one to each destination."""
    best: dict[str, dict[str, Any]] = {}
    for one in answers:
        destination = _everything(family, str(one["dst"]))
        if destination.startswith("fe80:") or one.get("type") == "throw":
            continue
        if destination not in best or one.get("metric", 0) < best[destination].get("metric", 0):
            best[destination] = one
    found = []
    for destination, one in best.items():
        source = one.get("prefsrc") or first.get((str(one.get("dev")), family == 6))
        found.append(HostRoute(family, destination, str(one.get("type", "unicast")), source))
    return found


def _everything(family: int, destination: str) -> str:
    if destination != "default":
        return destination
    return "0.0.0.0/0" if family == 4 else "::/0"


def _setting(name: str) -> str | None:
    try:
        return (_NET / name).read_text().strip()
    except OSError:
        return None


def _asked(*words: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(["ip", "-j", *words], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise _missing("ip") from error
    return json.loads(done.stdout or b"[]") if done.returncode == 0 else []


def _feed(command: list[str], orders: str) -> None:
    if not orders:
        return
    try:
        done = subprocess.run(command, input=orders.encode(), capture_output=True, check=False)
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise HostIncapable(
            "the capsule's network cannot be made",
            cause=f"{command[0]}: {said}",
            remedy="the kernel needs netfilter with NFQUEUE, TPROXY and REJECT (modules xt_NFQUEUE, nfnetlink_queue, xt_TPROXY,"
            " ipt_REJECT); run `relive doctor`, or leave out --record-egress",
        )


def _missing(program: str) -> ToolMissing:
    package = _PACKAGES[program]
    return ToolMissing(
        f"{program} is not installed",
        cause="--record-egress makes the capsule's network with it",
        remedy=f"install the package {package}, for instance with `apt-get install {package}`",
    )
