"""To the one kernel that all share: its settings, modules, clocks, keys, messages and devices."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from pathlib import Path

from ways import call, way


@way
def memory_of_the_machine() -> object:
    return Path("/dev/mem").open("rb").read(1)


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
def keys_of_the_host() -> int:
    # keyctl, KEYCTL_READ of the user's keyring.
    return call("syscall", 250, 11, -4, ctypes.create_string_buffer(64), 64)


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
