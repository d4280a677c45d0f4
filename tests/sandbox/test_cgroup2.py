"""Control groups of version 2 on a real kernel: a virtual machine of its own (QEMU without KVM) whose only hierarchy they are.

apt-get install qemu-system-x86; apt-get download linux-image-...-cloud-amd64, unpack it with `dpkg -x`
RELIVE_GUEST_KERNEL=.../vmlinuz-... pytest -n0 -m soak tests/sandbox/test_cgroup2.py
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sysconfig
from pathlib import Path

import pytest

KERNEL = os.environ.get("RELIVE_GUEST_KERNEL")
QEMU = shutil.which("qemu-system-x86_64")
SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = "/usr/bin/python3"
LIMIT = 900  # [s] to boot and run Python without KVM, on a busy machine
LEFT_OUT = ("test", "idlelib", "tkinter", "lib2to3", "ensurepip", "dist-packages", "__pycache__")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(LIMIT + 60),
    pytest.mark.skipif(KERNEL is None or QEMU is None, reason="no RELIVE_GUEST_KERNEL, or no QEMU"),
]


class Archive:
    """An initramfs: cpio's "newc" (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._names: set[str] = set()

    def add(self, name: str, content: bytes, mode: int = stat.S_IFREG | 0o755) -> None:
        name = name.strip("/")
        if name in self._names:
            return
        for parent in reversed(Path(name).parents[:-1]):
            if str(parent) not in self._names:
                self._append(str(parent), b"", stat.S_IFDIR | 0o755)
        self._append(name, content, mode)

    def _append(self, name: str, content: bytes, mode: int) -> None:
        self._names.add(name)
        path = name.encode() + b"\0"
        fields = (len(self._names), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        self._parts += [head, bytes(-len(head) % 4), content, bytes(-len(content) % 4)]

    def file(self, place: Path, name: str | None = None) -> None:
        self.add(name or str(place), place.read_bytes())

    def whole(self) -> bytes:
        self._append("TRAILER!!!", b"", 0)
        return b"".join(self._parts)


def initramfs() -> bytes:
    """Python with its library, what of Relive deals with groups, and the program that uses it as process 1."""
    made = Archive()
    libraries = [*Path(sysconfig.get_path("platstdlib", "posix_prefix", {"platbase": "/usr"})).iterdir()]
    stack = [one for one in libraries if one.name not in LEFT_OUT]
    while stack:
        one = stack.pop()
        if one.is_dir():
            stack += [inner for inner in one.iterdir() if inner.name not in LEFT_OUT]
        elif one.suffix in (".py", ".so"):
            made.file(one)
    program = Path(PROGRAM).resolve()
    made.file(program)
    for binary in (program, *Path(f"/usr/lib/{program.name}/lib-dynload").glob("_ctypes.*.so")):
        for words in map(str.split, subprocess.check_output(["ldd", binary], text=True).splitlines()):
            for word in words:
                if word.startswith("/"):
                    made.file(Path(word))
    for source in (SOURCE / "relive").rglob("*.py"):
        made.file(source, f"relive/{source.relative_to(SOURCE)}")
    made.file(Path(__file__).with_name("cgroup2_guest.py"), "guest.py")
    return made.whole()


def test_groups_of_version_2_hold_what_they_promise(tmp_path: Path) -> None:
    (tmp_path / "initramfs").write_bytes(initramfs())
    program = Path(PROGRAM).resolve()
    command = [
        *(str(QEMU), "-M", "pc,accel=tcg", "-cpu", "max", "-m", "768", "-nographic", "-no-reboot"),
        *("-nodefaults", "-serial", "stdio", "-kernel", str(KERNEL)),
        *("-initrd", str(tmp_path / "initramfs")),
        *("-append", f"console=ttyS0 quiet panic=-1 cgroup_no_v1=all rdinit={program} -- /guest.py"),
    ]
    said = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
        check=False,
    ).stdout
    lines = [line for line in said.splitlines() if "TOLD" in line]
    assert lines, said[-4000:]
    told = json.loads(lines[0].partition("TOLD")[2])
    print(told)
    assert {"memory", "pids", "cpu"} <= set(told["controllers"])
    capsule, branch = told["capsule"], told["branch"]
    assert capsule["version"] == 2 and capsule["limit"] == 48 << 20
    assert (capsule["ended"], capsule["kills"]) == (-9, 1)
    assert capsule["held"] >= 16 << 20
    assert capsule["is_of_process"] and capsule["bell"] is None and not capsule["is_left"]
    assert branch["made"] == 3  # and itself
    assert (branch["ended"], branch["kills"], branch["weight"]) == (-9, 1, "50")
    assert branch["after_sweep"] == ["ab-kept"] and not branch["is_left"]
