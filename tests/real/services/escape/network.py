"""Over the network, and by sockets of every kind."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from ways import FACTS, SHORT, call, talk, way


@way
def tcp_to_the_hosts_loopback() -> bytes:
    return talk(socket.AF_INET, ("127.0.0.1", FACTS["tcp"]))


@way
def tcp_to_the_hosts_addresses() -> bytes:
    for address in FACTS["addresses"]:
        try:
            return talk(socket.AF_INET, (address, FACTS["tcp"]))
        except OSError as error:
            last = error
    raise last


@way
def tcp_to_the_world() -> bytes:
    return talk(socket.AF_INET, ("192.0.2.1", 80))


@way
def tcp6_to_the_hosts_loopback() -> bytes:
    return talk(socket.AF_INET6, ("::1", FACTS["tcp"]))


@way
def tcp6_to_the_world() -> bytes:
    return talk(socket.AF_INET6, ("2001:db8::1", 80))


@way
def udp_to_the_world() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return one.sendto(b"x", ("192.0.2.1", 9))


@way
def udp_broadcast() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return one.sendto(b"x", ("255.255.255.255", 9))


@way
def udp_to_the_hosts_loopback() -> None:
    """Sending to one's own loopback is no way out; the test sees that the host's socket got nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("127.0.0.1", FACTS["udp"]))
        one.connect(("127.0.0.1", FACTS["udp"]))
        one.settimeout(SHORT)
        one.send(b"x")
        one.recv(9)


@way
def name_service() -> object:
    return socket.getaddrinfo("example.com", 80)


@way
def raw_packets() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as one:
        return one.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("192.0.2.1", 0))


@way
def link_layer() -> object:
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    if not others:
        raise OSError("there is no device")
    return others


@way
def vsock_to_the_hypervisor() -> bytes:
    """A family of sockets that knows no network namespaces."""
    return talk(socket.AF_VSOCK, (socket.VMADDR_CID_HOST, FACTS["tcp"]))


@way
def vsock_to_the_machine_itself() -> bytes:
    return talk(socket.AF_VSOCK, (1, FACTS["tcp"]))


@way
def ring_that_makes_sockets() -> int:
    """io_uring has a way to make sockets that a filter of system calls does not see."""
    return call("syscall", 425, 1, ctypes.create_string_buffer(120))


@way
def abstract_unix_socket_of_the_host() -> bytes:
    return talk(socket.AF_UNIX, "\0" + FACTS["abstract"])


@way
def unix_socket_in_run() -> bytes:
    return talk(socket.AF_UNIX, FACTS["run"])


@way
def unix_socket_in_tmp() -> bytes:
    return talk(socket.AF_UNIX, FACTS["tmp"])


@way
def network_namespace_of_the_host() -> object:
    here = os.stat("/proc/self/ns/net").st_ino
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if os.stat(f"/proc/{pid}/ns/net").st_ino != here:
            return call("setns", os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), 0)
    raise OSError("nobody is in another")


@way
def socket_of_bluetooth() -> object:
    return socket.socket(31, socket.SOCK_RAW, 1)


@way
def socket_of_a_field_bus() -> object:
    return socket.socket(29, socket.SOCK_RAW, 1)


@way
def socket_between_processors() -> object:
    return socket.socket(42, socket.SOCK_DGRAM)


@way
def socket_of_clusters() -> object:
    return socket.socket(30, socket.SOCK_RDM)


@way
def socket_past_the_network_stack() -> object:
    return socket.socket(44, socket.SOCK_RAW)


@way
def device_in_the_network() -> object:
    """A device of its own leads nowhere; one of the host would."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as one:
        body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + struct.pack("HHI", 8, 19, os.getppid() or 1)
        # RTM_NEWLINK into another's network.
        one.send(struct.pack("IHHII", 16 + len(body), 16, 5, 1, 0) + body)
        (error,) = struct.unpack_from("i", one.recv(4096), 16)
        if error:
            raise OSError(-error, os.strerror(-error))
    return "moved"
