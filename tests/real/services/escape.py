"""An HTTP service that tries to get out of where it is: GET /NAME tries one way and answers how it ended.

    escape.py PORT FACTS        FACTS: JSON, what a burglar may know of the host
    escape.py --table FACTS     tries all that need nothing from before a commit, and prints a table: NAME, a tab, how it ended

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


@way
def user_namespace() -> int:
    return call("unshare", 0x10000000)


@way
def user_namespace_of_a_child() -> int:
    return call("syscall", 56, 0x10000000 | 17, 0, 0, 0, 0)


@way
def user_namespace_of_a_child_by_the_new_call() -> int:
    return call(
        "syscall", 435, ctypes.create_string_buffer(struct.pack("QQQQQ", 0x10000000, 0, 0, 0, 17), 88), 88
    )


@way
def mount_namespace() -> int:
    return call("unshare", 0x00020000)


@way
def cgroup_namespace() -> int:
    return call("unshare", 0x02000000)


@way
def network_namespace_of_the_host() -> object:
    here = os.stat("/proc/self/ns/net").st_ino
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if os.stat(f"/proc/{pid}/ns/net").st_ino != here:
            return call("setns", os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), 0)
    raise OSError("nobody is in another")


@way
def control_groups_of_the_host() -> object:
    """Groups lie beside the sysfs of the host; a branch has no file system of them."""
    found = list(Path("/sys/fs/cgroup").rglob("cgroup.procs"))
    if not found:
        raise OSError("there are none")
    return str(found[0])


@way
def mount_of_control_groups() -> int:
    return call("mount", b"none", b"/mnt", b"cgroup2", 0, None)


@way
def mount_of_old_control_groups() -> int:
    return call("mount", b"none", b"/mnt", b"cgroup", 0, b"freezer")


@way
def paths_of_the_hosts_groups() -> object:
    others = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if not line.endswith(":/")]
    if not others:
        raise OSError("its own are the root")
    return others


@way
def mount_by_a_handle() -> int:
    return call("syscall", 430, b"tmpfs", 0)  # fsopen


@way
def copy_of_a_mount() -> int:
    return call("syscall", 428, -100, b"/", 1)  # open_tree, OPEN_TREE_CLONE


@way
def another_root_for_all() -> int:
    return call("syscall", 155, b"/", b"/")  # pivot_root


@way
def directory_above_a_new_root() -> object:
    """The way out of chroot: a root below the working directory."""
    if os.fork() == 0:
        try:
            Path("/tmp/escape-root").mkdir(exist_ok=True)
            os.chroot("/tmp/escape-root")
            for _ in range(64):
                os.chdir("..")
            os._exit(0 if Path("." + FACTS["home"] + "/store").exists() else 1)
        except OSError:
            os._exit(1)
    if os.wait()[1]:
        raise OSError("only its own root")
    return "the store"


@way
def remount_of_the_kernels_settings() -> int:
    return call("mount", b"none", b"/proc/sys", None, 0x20 | 0x1000, None)


@way
def unmount_of_the_kernels_settings() -> int:
    return call("umount2", b"/proc/sys", 2)


@way
def keys_of_the_host() -> int:
    return call(
        "syscall", 250, 11, -4, ctypes.create_string_buffer(64), 64
    )  # keyctl, KEYCTL_READ of the user's keyring


@way
def key_for_the_host() -> int:
    return call("syscall", 248, b"user", b"escape", b"x", 1, -4)  # add_key


@way
def key_asked_for() -> int:
    return call("syscall", 249, b"user", b"escape", None, -4)


@way
def audit_record() -> int:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9) as one:
        return one.send(struct.pack("IHHII", 17, 1005, 5, 1, 0) + b"x")


@way
def events_of_devices() -> object:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as one:
        one.sendto(b"add@/escape\0ACTION=add\0", (0, 1))
        raise OSError("nobody outside hears it")


@way
def performance_counters() -> int:
    return call("syscall", 298, ctypes.create_string_buffer(struct.pack("II", 1, 128), 128), -1, 0, -1, 0)


@way
def bpf_program() -> int:
    return call("syscall", 321, 0, ctypes.create_string_buffer(struct.pack("IIII", 1, 4, 4, 1), 72), 72)


@way
def another_kernel() -> int:
    return call("syscall", 246, 0, 0, None, 0)


@way
def another_kernel_from_a_file() -> int:
    return call("syscall", 320, -1, -1, 0, None, 0)


@way
def kernel_module_from_a_file() -> int:
    return call("syscall", 313, os.open("/etc/hostname", os.O_RDONLY), b"", 0)


@way
def removal_of_a_kernel_module() -> int:
    return call("syscall", 176, b"loop", 0)


@way
def ports_of_the_machine() -> int:
    return call("ioperm", 0x80, 1, 1)


@way
def all_ports_of_the_machine() -> int:
    return call("iopl", 3)


@way
def restart_of_the_machine() -> int:
    return call("syscall", 169, 0xFEE1DEAD, 672274793, 0x89ABCDEF, None)  # enables Ctrl-Alt-Del, no more


@way
def clock_step() -> int:
    return call("settimeofday", struct.pack("qq", 1, 0), None)


@way
def clock_rate() -> int:
    return call("adjtimex", ctypes.create_string_buffer(struct.pack("I", 0x4002), 512))


@way
def swap_file() -> int:
    return call("swapon", b"/etc/hostname", 0)


@way
def accounting_of_processes() -> int:
    return call("acct", b"/tmp/escape-acct")


@way
def quotas() -> int:
    return call("quotactl", 0x80000200 | 1 << 8, b"/dev/vda", 0, None)


@way
def messages_of_the_kernel() -> int:
    return call("klogctl", 3, ctypes.create_string_buffer(64), 64)


@way
def clearing_of_the_kernels_messages() -> int:
    return call("klogctl", 5, None, 0)


@way
def message_to_the_kernels_log() -> int:
    return os.write(os.open("/dev/kmsg", os.O_WRONLY), b"escape")


@way
def core_of_the_kernel() -> object:
    return os.read(os.open("/proc/kcore", os.O_RDONLY), 1) or (_ for _ in ()).throw(OSError("empty"))


@way
def addresses_of_the_kernel() -> object:
    said = Path("/proc/kallsyms").read_text()
    if not said:
        raise OSError("empty")
    return said[:40]


@way
def list_of_keys() -> object:
    said = Path("/proc/keys").read_text()
    if not said:
        raise OSError("empty")
    return said[:40]


@way
def caches_of_the_machine() -> int:
    return Path("/proc/sys/vm/drop_caches").write_text("1")


@way
def program_for_modules() -> int:
    return Path("/proc/sys/kernel/modprobe").write_text("/tmp/escape")


@way
def formats_of_programs() -> int:
    return Path("/proc/sys/fs/binfmt_misc/register").write_text(":x:M::x::/tmp/escape:")


@way
def power_of_the_machine() -> int:
    return Path("/sys/power/state").write_text("freeze")


@way
def modules_parameters() -> int:
    return Path("/sys/module/kernel/parameters/panic").write_text("0")


@way
def blocks_of_a_disk() -> object:
    for name in os.listdir("/sys/block"):
        with Path("/dev", name).open("rb") as disk:
            return disk.read(1)
    raise OSError("there is no disk")


@way
def fuse() -> object:
    return os.open("/dev/fuse", os.O_RDWR)


@way
def virtual_machines() -> object:
    return os.open("/dev/kvm", os.O_RDWR)


@way
def tunnel() -> object:
    return os.open("/dev/net/tun", os.O_RDWR)


@way
def terminal_of_the_machine() -> object:
    return os.open("/dev/tty1", os.O_RDWR)


@way
def words_put_into_a_terminal() -> int:
    _, terminal = os.openpty()
    return call("ioctl", terminal, 0x5412, b"x")


@way
def memory_of_process_1() -> object:
    return os.open("/proc/1/mem", os.O_RDWR)


@way
def descriptors_of_process_1() -> object:
    names = os.listdir("/proc/1/fd")
    return [os.readlink(f"/proc/1/fd/{name}") for name in names]


@way
def descriptor_taken_from_process_1() -> int:
    return call("syscall", 438, os.pidfd_open(1), 3, 0)  # pidfd_getfd


@way
def trace_of_process_1() -> int:
    return call("ptrace", 0x4206, 1, 0, 0)  # PTRACE_SEIZE


@way
def write_into_process_1() -> int:
    word = ctypes.create_string_buffer(8)
    own, its = struct.pack("QQ", ctypes.addressof(word), 8), struct.pack("QQ", 0x400000, 8)
    return call("process_vm_writev", 1, own, 1, its, 1, 0)


@way
def end_of_process_1() -> object:
    os.kill(1, 9)
    if Path("/proc/1/stat").exists():
        raise OSError("it ignores its children")
    return "killed"


@way
def real_time() -> object:
    return os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) or "real-time"


@way
def priority() -> int:
    return os.nice(-1)


@way
def locked_memory_without_a_limit() -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
    memory = ctypes.create_string_buffer(16 << 20)
    return call("mlock", memory, len(memory))


@way
def quiet_disk() -> int:
    return call("syscall", 251, 1, 0, 1 << 13)  # ioprio_set, real-time


@way
def immutable_file() -> int:
    file = os.open("/tmp/escape-immutable", os.O_CREAT | os.O_RDWR)
    return call("ioctl", file, 0x40086602, struct.pack("l", 0x10))


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
        one.send(
            struct.pack("IHHII", 16 + len(body), 16, 5, 1, 0) + body
        )  # RTM_NEWLINK into another's network
        (error,) = struct.unpack_from("i", one.recv(4096), 16)
        if error:
            raise OSError(-error, os.strerror(-error))
    return "moved"


def tried(name: str) -> str:
    attempt = WAYS[name]
    try:
        return f"out: {attempt()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        try:
            body = tried(self.path[1:]).encode()
        except KeyError:
            body = b"KeyError"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def table() -> None:
    for name in WAYS:
        print(name, tried(name).replace("\n", " "), sep="\t", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table()
        sys.exit()
    before = socket.create_connection(("127.0.0.1", FACTS["kept"]), timeout=SHORT)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect((FACTS["addresses"][0], FACTS["udp"]))
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
