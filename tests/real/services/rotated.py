"""Writes lines to two logs, and has logrotate rotate them: one by copying and truncating, one by renaming, after which it is told.

python rotated.py DIRECTORY LINES COMMAND...     COMMAND rotates, and is run after so many lines each time
"""

import signal
import subprocess
import sys
from pathlib import Path

directory, lines, command = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
logs = {}


def reopen(*_):
    for name in ("copied", "renamed"):
        if name == "renamed" or name not in logs:
            logs[name] = (directory / name).open("a", buffering=1)


signal.signal(signal.SIGHUP, reopen)
reopen()
(directory / "pid").write_text(f"{__import__('os').getpid()}")
number = 0
while True:
    number += 1
    for log in list(logs.values()):
        log.write(f"line {number} of a log that is rotated by logrotate while commits are taken\n")
    if number % lines == 0:
        subprocess.run(command, check=True)
