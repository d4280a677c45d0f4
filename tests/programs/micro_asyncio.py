"""A service of asyncio whose memory changes without end, in tasks and in a thread. For tests of commits on top of others."""

from __future__ import annotations

import asyncio
import ctypes
import random
import signal
import sys
import threading
import time

PAGE, PAGES = 4096, 500
held = bytearray(PAGE * PAGES)


async def write(choose: random.Random) -> None:
    while True:
        at = choose.randrange(PAGES) * PAGE
        held[at : at + 16] = choose.randbytes(16)
        await asyncio.sleep(0.001)


async def collect(choose: random.Random) -> None:
    """Makes objects and lets go of others, so that memory comes from the kernel and goes back to it."""
    kept: list[bytes] = []
    while True:
        kept.append(choose.randbytes(choose.choice((50, 5000, 500_000))))
        if len(kept) > 20:
            kept.pop(choose.randrange(len(kept)))
        await asyncio.sleep(0.002)


def count() -> None:
    at = 0
    while True:
        at += 1
        held[at % PAGES * PAGE + 100] = at % 256
        time.sleep(0.001)


async def main() -> None:
    choose = random.Random(int(sys.argv[1]))
    threading.Thread(target=count, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(write(choose), collect(choose))


ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: it ends with whoever started it
asyncio.run(main())
