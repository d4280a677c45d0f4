"""What the CPU can do, read from /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path

from relive.kernel.cpu import instruction_sets, parse_instruction_sets

TWO_CPUS = """\
processor\t: 0
flags\t\t: fpu sse2 avx avx2 avx512f constant_tsc hypervisor pti
vmx flags\t: vnmi

processor\t: 1
flags\t\t: fpu sse2 avx avx2 constant_tsc hypervisor pti
"""


def test_only_what_every_cpu_has_and_programs_can_use_counts():
    assert parse_instruction_sets(TWO_CPUS) == ["avx", "avx2", "sse2"]


def test_a_machine_that_says_nothing_has_none():
    assert parse_instruction_sets("processor\t: 0\nBogoMIPS\t: 50\n") == []


def test_this_machine_says_what_every_x86_64_has():
    assert {"sse", "sse2", "mmx"} <= set(instruction_sets())
    assert set(instruction_sets()) <= set(Path("/proc/cpuinfo").read_text().split())
