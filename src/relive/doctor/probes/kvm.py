"""KVM, tried with a guest: the device file, a VM and a virtual processor can all be had where no kernel would boot.

The guest is what a 64-bit kernel does in its first moments, in some fifty instructions: it loads its descriptor tables
and page tables, takes an exception and returns from it, sets a model-specific register, turns interrupts on and off. At
each step it writes a digit to a port, at the end it halts. KVMs that emulate the kernel's part (as inside some clouds)
pass a real-mode guest but not this one. Numbers are those of linux/kvm.h on x86-64.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext
from relive.kernel import libc

__all__ = ["kvm"]

_DEVICE = Path("/dev/kvm")
_SYS_IOCTL = 16  # fcntl.ioctl() refuses arguments above 2**31
_GET_API_VERSION, _CREATE_VM, _GET_VCPU_MMAP_SIZE = 0xAE00, 0xAE01, 0xAE04
_SET_TSS_ADDRESS, _SET_USER_MEMORY_REGION, _CREATE_VCPU = 0xAE47, 0x4020AE46, 0xAE41
_GET_SUPPORTED_CPUID, _SET_CPUID2 = 0xC008AE05, 0x4008AE90
_GET_SREGS, _SET_SREGS, _SET_REGS, _RUN = 0x8138AE83, 0x4138AE84, 0x4090AE82, 0xAE80
_API_VERSION = 12
_EXIT_IO, _EXIT_HLT, _EXIT_SHUTDOWN, _EXIT_FAIL_ENTRY, _EXIT_INTERNAL_ERROR = 2, 5, 8, 9, 17
_EXITS = {
    _EXIT_HLT: "it halted",
    _EXIT_SHUTDOWN: "a triple fault",
    _EXIT_FAIL_ENTRY: "the processor refused to enter it",
    _EXIT_INTERNAL_ERROR: "KVM could not emulate an instruction, which it should not have to emulate",
}
_EXITS_MOST = 50
_CPUID_ENTRIES = 256  # the most that KVM gives
_REMEDY = (
    "use a machine with hardware virtualisation, or a VM with nested virtualisation on; "
    "without it microVMs are emulated, which is slow"
)

_MEMORY = 0x10000
_PAGE_TABLES, _GDT, _IDT, _CODE, _STACK = 0x1000, 0x4000, 0x5000, 0x6000, 0x8000
_HANDLER, _GDT_POINTER, _IDT_POINTER = 0x6075, 0x6080, 0x608A
_CODE_SELECTOR, _DATA_SELECTOR = 8, 16
_BREAKPOINT = 3  # its vector

_STEPS = {
    "1": "its first instruction",
    "2": "loading its descriptor tables",
    "3": "reloading its page tables",
    "4": "an exception and the return from it",
    "5": "setting a model-specific register",
    "6": "turning interrupts on and off",
}
# Machine code, each line with what it says in assembler.
_GUEST_SOURCE = """
    ba e9 00 00 00           | mov $0xe9, %edx
    b0 31 ee                 | mov $'1', %al;  out %al, (%dx)
    0f 01 14 25 80 60 00 00  | lgdt 0x6080
    0f 01 1c 25 8a 60 00 00  | lidt 0x608a
    8c c8 a8 03 75 53        | mov %cs, %eax;  test $3, %al;  jnz bad
    b0 32 ee                 | mov $'2', %al;  out %al, (%dx)
    0f 20 d8 0f 22 d8        | mov %cr3, %rax; mov %rax, %cr3
    b0 33 ee                 | mov $'3', %al;  out %al, (%dx)
    31 db cc                 | xor %ebx, %ebx; int3
    83 fb 42 75 3f           | cmp $0x42, %ebx; jne bad
    b0 34 ee                 | mov $'4', %al;  out %al, (%dx)
    52                       | push %rdx
    b9 82 00 00 c0           | mov $0xc0000082, %ecx  (LSTAR)
    b8 00 50 34 12 31 d2     | mov $0x12345000, %eax; xor %edx, %edx
    0f 30 31 c0 0f 32        | wrmsr; xor %eax, %eax; rdmsr
    5a                       | pop %rdx
    3d 00 50 34 12 75 21     | cmp $0x12345000, %eax; jne bad
    b0 35 ee                 | mov $'5', %al;  out %al, (%dx)
    fb 9c 58                 | sti; pushfq; pop %rax
    a9 00 02 00 00 74 14     | test $0x200, %eax; jz bad
    fa 9c 58                 | cli; pushfq; pop %rax
    a9 00 02 00 00 75 0a     | test $0x200, %eax; jnz bad
    0f 01 f8 0f 01 f8        | swapgs; swapgs
    b0 36 ee f4              | mov $'6', %al;  out %al, (%dx); hlt
    b0 21 ee f4              | bad: mov $'!', %al; out %al, (%dx); hlt
    bb 42 00 00 00 48 cf     | handler: mov $0x42, %ebx; iretq
"""
_GUEST = bytes.fromhex("".join(line.partition("|")[0] for line in _GUEST_SOURCE.splitlines()))


def kvm(_ground: ProbeContext) -> ProbeResult:
    """Run the guest; the time limit of the probe ends one that spins."""
    if not _DEVICE.exists():
        raise Obstacle("none", cause="there is no /dev/kvm", remedy=_REMEDY)
    with contextlib.ExitStack() as stack:
        system = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, system)
        version = fcntl.ioctl(system, _GET_API_VERSION, 0)
        if version != _API_VERSION:
            raise Obstacle(
                "unknown", cause=f"it speaks version {version}, not {_API_VERSION}", remedy=_REMEDY
            )
        machine = fcntl.ioctl(system, _CREATE_VM, 0)
        stack.callback(os.close, machine)
        # Older Intel processors want a place for it.
        libc.syscall(_SYS_IOCTL, machine, _SET_TSS_ADDRESS, 0xFFFBD000)
        memory = _guest_memory()
        processor = _processor(system, machine, memory)
        stack.callback(os.close, processor)
        shared = mmap.mmap(processor, fcntl.ioctl(system, _GET_VCPU_MMAP_SIZE, 0))
        steps, end = _run(processor, shared)
    if steps != "".join(_STEPS) or end != _EXIT_HLT:
        raise _stuck(steps, end)
    return works("a 64-bit guest ran to its end")


def _stuck(steps: str, end: int) -> Obstacle:
    done = steps.rstrip("!")
    at = list(_STEPS.values())[min(len(done), len(_STEPS) - 1)]
    why = "it went on wrongly" if steps.endswith("!") else _EXITS.get(end, f"exit reason {end}")
    return Obstacle("made, but not usable", cause=f"a 64-bit guest failed at {at}: {why}", remedy=_REMEDY)


def _guest_memory() -> mmap.mmap:
    memory = mmap.mmap(-1, _MEMORY)
    # Three levels of tables, each with one entry; the last maps the first 2 MiB onto themselves.
    for level, entry in enumerate((0x2003, 0x3003, 0x83)):
        struct.pack_into("<Q", memory, _PAGE_TABLES + level * mmap.PAGESIZE, entry)
    struct.pack_into("<3Q", memory, _GDT, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF)
    gate = (_HANDLER & 0xFFFF, _CODE_SELECTOR, 0, 0x8E, _HANDLER >> 16, 0, 0)
    struct.pack_into("<HHBBHII", memory, _IDT + 16 * _BREAKPOINT, *gate)
    memory[_CODE : _CODE + len(_GUEST)] = _GUEST
    struct.pack_into("<HQ", memory, _GDT_POINTER, 3 * 8 - 1, _GDT)
    struct.pack_into("<HQ", memory, _IDT_POINTER, 4 * 16 - 1, _IDT)
    return memory


def _processor(system: int, machine: int, memory: mmap.mmap) -> int:
    """A virtual processor that stands before the guest's first instruction, in 64-bit mode."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(machine, _SET_USER_MEMORY_REGION, struct.pack("<IIQQQ", 0, 0, 0, _MEMORY, address))
    processor = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    try:
        # Without the host's CPUID the processor would not be a 64-bit one.
        cpuid = bytearray(struct.pack("<II", _CPUID_ENTRIES, 0) + bytes(40 * _CPUID_ENTRIES))
        fcntl.ioctl(system, _GET_SUPPORTED_CPUID, cpuid)
        fcntl.ioctl(processor, _SET_CPUID2, cpuid)
        special = bytearray(312)  # struct kvm_sregs
        fcntl.ioctl(processor, _GET_SREGS, special)
        _segment(special, 0, _CODE_SELECTOR, kind=11, long=1)
        for number in range(1, 6):  # ds, es, fs, gs, ss
            _segment(special, number, _DATA_SELECTOR, kind=3, long=0)
        struct.pack_into("<QH", special, 192, _GDT, 3 * 8 - 1)
        struct.pack_into("<QH", special, 208, _IDT, 4 * 16 - 1)
        # cr0: paging, numeric error, extension type, protection; cr2; cr3; cr4: PAE; cr8; efer: long mode, active
        struct.pack_into("<6Q", special, 224, 0x80000031, 0, _PAGE_TABLES, 0x20, 0, 0x500)
        fcntl.ioctl(processor, _SET_SREGS, special)
        # rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8 to r15, rip, rflags
        fcntl.ioctl(processor, _SET_REGS, struct.pack("<18Q", *[0] * 6, _STACK, *[0] * 9, _CODE, 2))
    except BaseException:
        os.close(processor)
        raise
    return processor


def _segment(special: bytearray, number: int, selector: int, *, kind: int, long: int) -> None:
    """struct kvm_segment: base, limit, selector; type, present, dpl, db, s, l, g, avl, unusable, padding."""
    facts = (0, 0xFFFFFFFF, selector, kind, 1, 0, 1 - long, 1, long, 1, 0, 0, 0)
    struct.pack_into("<QIH10B", special, 24 * number, *facts)


def _run(processor: int, shared: mmap.mmap) -> tuple[str, int]:
    """(what the guest wrote, reason of the last exit)."""
    written = ""
    for _ in range(_EXITS_MOST):
        fcntl.ioctl(processor, _RUN, 0)
        (reason,) = struct.unpack_from("<I", shared, 8)
        if reason != _EXIT_IO:
            return written, reason
        (offset,) = struct.unpack_from("<Q", shared, 40)
        written += chr(shared[offset])
    return written, _EXIT_IO
