"""A program that dies of what it drew and of when."""

import random
import time

drawn = [random.randrange(100_000) for _ in range(3)]
at = time.time()


def end():
    raise ValueError(f"drew {drawn[-1]} at {at:.3f}")


end()
