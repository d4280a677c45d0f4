"""An HTTP service that tries to get out of where it is: GET /NAME tries one way and answers how it ended.

    escape.py PORT FACTS        FACTS: JSON, what a burglar may know of the host

An answer that begins with "out" means that it got out. Standard library only; runs as root.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FACTS = json.loads(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
WAYS: dict[str, Callable[[], object]] = {}
SHORT = 2.0  # [s]


def way(attempt: Callable[[], object]) -> Callable[[], object]:
    WAYS[attempt.__name__] = attempt
    return attempt


def call(name: str, *arguments: object) -> int:
    result = int(getattr(libc, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def talk(family: int, address: object) -> bytes:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(SHORT)
        one.connect(address)
        return one.recv(99)


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
def connection_opened_before_the_commit() -> bytes:
    """The host answers every byte on it; in the branch it has ended."""
    before.settimeout(SHORT)
    before.send(b"x")
    said = before.recv(99)
    if not said:
        raise OSError("it has ended")
    return said


@way
def datagram_socket_connected_before_the_commit() -> None:
    """The test sees that the host's socket got nothing."""
    datagrams.settimeout(SHORT)
    datagrams.send(b"x")
    datagrams.recv(9)


@way
def packet_socket_opened_before_the_commit() -> None:
    """It belongs to the branch's own loopback, if to anything."""
    packets.sendto(b"\0" * 60, ("lo", 0x0800))
    raise OSError("only to its own loopback")


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
def root_of_process_1() -> object:
    return os.listdir("/proc/1/root" + FACTS["home"] + "/store")


@way
def store() -> object:
    return os.listdir(FACTS["home"] + "/store")


@way
def descriptors_of_others() -> object:
    """Directories that a process here has open lead out with "..", wherever they lie."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for number in os.listdir(f"/proc/{pid}/fd"):
            place = f"/proc/{pid}/fd/{number}"
            if Path(place).is_dir() and Path(place, "..").resolve() != Path("/proc"):
                return os.readlink(place)
    raise OSError("none")


@way
def disk_device() -> object:
    Path("/tmp/escape-disk").unlink(missing_ok=True)
    os.mknod("/tmp/escape-disk", stat.S_IFBLK | 0o600, FACTS["disk"])
    return Path("/tmp/escape-disk").open("rb").read(1)


@way
def device_node_on_the_hosts_disk() -> object:
    return Path(FACTS["node"]).open("rb").read(1)


@way
def memory_of_the_machine() -> object:
    return Path("/dev/mem").open("rb").read(1)


@way
def mount() -> int:
    return call("mount", b"none", b"/mnt", b"tmpfs", 0, None)


@way
def unmount_what_hides_the_store() -> int:
    return call("umount2", FACTS["home"].encode(), 2)


@way
def unmount_in_a_user_namespace() -> object:
    if os.fork() == 0:
        try:
            os.unshare(0x10000000 | 0x00020000) if hasattr(os, "unshare") else call("unshare", 0x10020000)
            call("umount2", FACTS["home"].encode(), 2)
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.wait()[1]:
        raise OSError("the child failed")
    return "unmounted"


@way
def process_1_as_an_accomplice() -> object:
    """Process 1 can be traced by root; it must have no capabilities that we have not."""
    own, its = (
        int(Path(f"/proc/{pid}/status").read_text().partition("CapPrm:")[2].split()[0], 16)
        for pid in ("self", 1)
    )
    if its & ~own:
        return f"{its:x} but {own:x}"
    raise OSError("it can do nothing more")


@way
def kill_of_a_host_process() -> None:
    os.kill(FACTS["pid"], 0)


@way
def trace_of_a_host_process() -> int:
    return call("ptrace", 16, FACTS["pid"], 0, 0)


@way
def files_by_handle() -> int:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0) + bytes(8))
    here = os.open("/", os.O_RDONLY)
    try:
        return call("open_by_handle_at", here, handle, os.O_RDONLY)
    finally:
        os.close(here)


@way
def kernel_settings() -> int:
    return Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/escape")


@way
def kernel_switch() -> int:
    return Path("/proc/sysrq-trigger").write_text("h")


@way
def system_files() -> int:
    return Path("/sys/kernel/uevent_helper").write_text("/tmp/escape")


@way
def clock_of_the_machine() -> int:
    return call("clock_settime", 0, struct.pack("qq", 1, 0))


@way
def kernel_module() -> int:
    return call("init_module", b"", 0, b"")


@way
def file_of_the_host() -> None:
    """Writing is allowed, into the branch's own layer; the test sees that the host's file is as it was."""
    Path(FACTS["file"]).write_text("the burglar's\n")
    raise OSError("only its own")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        try:
            answer = f"out: {WAYS[self.path[1:]]()!r}"
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        body = answer.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    before = socket.create_connection(("127.0.0.1", FACTS["kept"]), timeout=SHORT)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect((FACTS["addresses"][0], FACTS["udp"]))
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
