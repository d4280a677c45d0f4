"""What Relive asks of the recorder: one JSON object in the environment variable ``RELIVE_RECORDER``.

Relive writes it when it starts a service; a name that is not known here is an error, since it was meant to do something.
"""

import json
from typing import Any, Dict, List

__all__ = ["VARIABLE", "Options"]

VARIABLE = "RELIVE_RECORDER"


class Options:
    """Each with its default.

    Attributes:
        rings: directory of the rings, where the service's user may make files.
        ring_bytes: capacity of one process's ring.
        inline_bytes: longer bodies go into files of their own beside the ring.
        body_bytes: of longer bodies only the beginning is kept, and what was cut is said.
        off: names of kinds that are not recorded, such as "clock" or "file-read".
        secret_names, secret_patterns: see ``scrub``.
        wait_ms: how long a failing thread stands still at most for its commit; 0: not at all.
        failure_pause: seconds after a failure was committed before the same one is again.
        answers: files in ``answers`` in ``rings``: this process begins in a replay, see ``playing/afresh.py``; none: it is
            recorded.
        quick: the part in C is used where it can be loaded.
    """

    def __init__(self, given: Dict[str, Any]) -> None:
        self.rings = "/run/relive/rings"
        self.ring_bytes = 4 << 20
        self.inline_bytes = 64 << 10
        self.body_bytes = 16 << 20
        self.off: List[str] = []
        self.secret_names: List[str] = []
        self.secret_patterns: List[str] = []
        self.wait_ms = 2000
        self.failure_pause = 30.0
        self.answers: List[str] = []
        self.quick = True
        for name, value in given.items():
            default = getattr(self, name)  # AttributeError names what is not known
            if type(value) is not type(default) and not (type(default) is float and type(value) is int):
                raise TypeError(f"{VARIABLE}: {name} cannot be {value!r}")
            setattr(self, name, value)

    @classmethod
    def from_text(cls, text: str) -> "Options":
        """Read the variable's value; raises ValueError, TypeError or AttributeError."""
        return cls(json.loads(text))
