"""A process that is started by exec in a branch: which of the recorded ones it is.

Nothing of its parent's memory is in it, so it is known by its command line: it is the first process with the same one that was
recorded behind the commit and that nobody is yet. Numbers in it may differ where no process has exactly the same one: those of
descriptors, above all (multiprocessing). Who it is, is claimed by making the file ``FILE.taken`` beside the rings.
"""

from __future__ import annotations

import os
from typing import List, Optional

from relive_recorder.playing.answers import STARTED, Answers, Started, read_started

__all__ = ["Joined", "command", "join"]

_MOST_WORDS = 64
_LONGEST = 1000  # [characters] of a word of it that are compared


class Joined:
    """What a process finds.

    Attributes:
        name: of its file of answers; None: nobody like it was recorded.
        nothing: answers that hold none, with the policy of this replay.
    """

    def __init__(self, name: Optional[str], nothing: Answers) -> None:
        self.name = name
        self.nothing = nothing


def command() -> List[str]:
    """The command line of this process, as the kernel has it."""
    fd = os.open("/proc/self/cmdline", os.O_RDONLY | os.O_CLOEXEC)
    try:
        raw = os.read(fd, _MOST_WORDS * _LONGEST)
    finally:
        os.close(fd)
    words = raw.decode("utf-8", "replace").split("\0")[:-1]
    return [word[:_LONGEST] for word in words[:_MOST_WORDS]]


def join(rings: str, own: List[str]) -> Optional[Joined]:
    """Find out who this process is; None where there is no replay.

    Raises:
        Refused, OSError: what lies there is not what it should be.
    """
    directory = f"{rings}/answers"
    if not os.path.lexists(f"{directory}/{STARTED}"):
        return None
    started = read_started(directory)
    return Joined(_claim(rings, own, started), started.nothing())


def _claim(rings: str, own: List[str], started: Started) -> Optional[str]:
    alike = [name for name, words in started.commands if words == own]
    numbered = [_without_numbers(word) for word in own]
    alike += [
        name
        for name, words in started.commands
        if words != own and [_without_numbers(word) for word in words] == numbered
    ]
    for name in alike:
        try:
            os.close(os.open(f"{rings}/{name}.taken", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            continue
        return name
    return None


def _without_numbers(word: str) -> str:
    """Each run of digits as one digit, and so each placeholder of a secret, which is another one in each such process."""
    import re  # only here: it would cost every start of a service

    return re.sub("<secret:[0-9a-f]{8}>|[0-9]+", "0", word)
