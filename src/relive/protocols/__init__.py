"""What services say to others over the network: understood, and in a replay answered.

``call.py`` is what was said as a value; ``session.py`` is what a protocol has to be able to do; ``pool.py`` finds the recorded
answer to what is asked. Each protocol has a file of its own, or a folder. Everything here is pure: bytes in, values and bytes
out, no socket and no clock.
"""
