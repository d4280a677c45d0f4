"""A process with a mapping of each kind of advice and flag; with the word ``more``, one that is locked when it is touched, too.

With the word ``many`` it has 3,000 more, of which no two next to each other are alike.
"""

import ctypes
import mmap
import sys

LIBC = ctypes.CDLL(None)
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
WIPE_ON_FORK, NO_RESERVE, GROWS_DOWN, ON_FAULT = 18, 0x4000, 0x100, 1


def take(
    *advice: int, pages: int = 3, flags: int = mmap.MAP_PRIVATE, protection: int = READ_WRITE
) -> mmap.mmap:
    """A mapping whose second page has got the advice."""
    taken = mmap.mmap(-1, pages * mmap.PAGESIZE, flags | mmap.MAP_ANONYMOUS, protection)
    for one in advice:
        taken.madvise(one, mmap.PAGESIZE, mmap.PAGESIZE)
    return taken


kept = [
    take(mmap.MADV_DONTFORK),
    take(mmap.MADV_DONTFORK, mmap.MADV_DONTDUMP, WIPE_ON_FORK),
    take(mmap.MADV_SEQUENTIAL),
    take(mmap.MADV_RANDOM, mmap.MADV_DONTDUMP),
    take(mmap.MADV_HUGEPAGE, pages=1024),
    take(mmap.MADV_NOHUGEPAGE),
    take(flags=mmap.MAP_SHARED),
    take(flags=mmap.MAP_PRIVATE | NO_RESERVE),
    take(flags=mmap.MAP_PRIVATE | GROWS_DOWN),
    take(protection=mmap.PROT_READ),
]
locked = take()
address = ctypes.byref(ctypes.c_char.from_buffer(locked))
LIBC.mlock(address, 1)
if "more" in sys.argv:
    LIBC.mlock2(address, 1, ON_FAULT)
if "many" in sys.argv:
    kept += [take(protection=READ_WRITE if at % 2 else mmap.PROT_READ) for at in range(3000)]
print("ready", flush=True)
sys.stdin.read()
