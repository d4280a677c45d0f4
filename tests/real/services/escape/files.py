"""To the host's files: by names, descriptors, devices and mounts."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path

from ways import FACTS, call, way


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
def files_by_handle() -> int:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0) + bytes(8))
    here = os.open("/", os.O_RDONLY)
    try:
        return call("open_by_handle_at", here, handle, os.O_RDONLY)
    finally:
        os.close(here)


@way
def file_of_the_host() -> None:
    """Writing is allowed, into the branch's own layer; the test sees that the host's file is as it was."""
    Path(FACTS["file"]).write_text("the burglar's\n")
    raise OSError("only its own")


@way
def mount_namespace() -> int:
    return call("unshare", 0x00020000)


@way
def mount_of_control_groups() -> int:
    return call("mount", b"none", b"/mnt", b"cgroup2", 0, None)


@way
def mount_of_old_control_groups() -> int:
    return call("mount", b"none", b"/mnt", b"cgroup", 0, b"freezer")


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
def blocks_of_a_disk() -> object:
    for name in os.listdir("/sys/block"):
        with Path("/dev", name).open("rb") as disk:
            return disk.read(1)
    raise OSError("there is no disk")


@way
def immutable_file() -> int:
    file = os.open("/tmp/escape-immutable", os.O_CREAT | os.O_RDWR)
    return call("ioctl", file, 0x40086602, struct.pack("l", 0x10))
