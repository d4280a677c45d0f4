"""What the CPU can do, as far as programs choose their code by it. A program does so once, when it starts, so a process that
comes back elsewhere goes on using what it found.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["instruction_sets", "parse_instruction_sets"]

# Flags of /proc/cpuinfo that programs can use or see. The others are about the kernel, virtual machines, power or defects,
# and differ between hosts on which every program runs alike.
_FOR_PROGRAMS = re.compile(
    r"""
    avx\w* | amx_\w+ | sse\w* | ssse3 | pni | mmx | mmxext | 3dnow | 3dnowext | 3dnowprefetch | fma | fma4 | f16c | xop | tbm
    | bmi[12] | abm | adx | aes | vaes | pclmulqdq | vpclmulqdq | sha_ni | sha512 | sm[34] | gfni | popcnt | movbe | cx16
    | lahf_lm | rdrand | rdseed | rdtscp | rdpid | fsgsbase | clflushopt | clwb | clzero | cldemote | movdiri | movdir64b
    | erms | fsrm | hle | rtm | misalignsse | xsave | xsaveopt | xsavec | xgetbv1 | ospke | user_shstk | waitpkg | serialize
    """,
    re.VERBOSE,
)


@cache
def instruction_sets() -> list[str]:
    """Those of this machine, in the order of their names."""
    return parse_instruction_sets(Path("/proc/cpuinfo").read_text())


def parse_instruction_sets(cpuinfo: str) -> list[str]:
    """Those that every CPU of a ``/proc/cpuinfo`` has; a process may run on any."""
    lines = [line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("flags")]
    common = set.intersection(*map(set, lines)) if lines else set()
    return sorted(flag for flag in common if _FOR_PROGRAMS.fullmatch(flag))
