"""Calls made twice in one process: recorded, and then, with the upstream gone, answered from what was recorded.

Runs in the program under test: Python 3.8 syntax. Prints JSON: for each call its two outcomes and the events of both times.
"""

import gc
import json
import pathlib
import re

from relive_recorder import calls
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.ring import MODE

# What differs between two times: how long it took, and that the second was played.
_PASSING = ("ns", "body_ns", "played", "file", "volatile")


class Twice:
    def __init__(self, kinds):
        self._kinds = kinds
        self._events = []
        self._tape = []
        self._emit = recorder.emit
        recorder.emit = self._noted
        calls.answer_with(self._find, lambda _kind, _source: None)

    def _noted(self, kind, fields, data=b"", request=None):
        seq = self._emit(kind, fields, data, request)
        if kind in self._kinds:
            fields = json.loads(json.dumps(fields))
            if "file" in fields:
                data = pathlib.Path(recorder.options.rings, fields["file"]).read_bytes()
            self._events.append((kind, fields, data))
        return seq

    def _find(self, channel, asked):
        for event in self._tape:
            kind, fields, data = event
            if kind == channel.kind and fields["asked"] == asked:
                self._tape.remove(event)
                return calls.KeptAnswer(fields, data)
        raise calls.NoAnswer(f"nothing recorded for {asked}")

    def run(self, named, between):
        """``named``: pairs of name and call. ``between`` is called before the second time."""
        gc.freeze()  # all that is there by now is not looked at again and again
        first = [(name, self._once(call, RECORD)) for name, call in named]
        between()
        told = []
        for (name, (before, events)), (_, call) in zip(first, named):  # noqa: B905 - "strict" came with 3.10
            self._tape = list(events)
            after, again = self._once(call, REPLAY)
            told.append([name, before, after, _shown(events), _shown(again), len(self._tape)])
        recorder._ring.words[MODE] = RECORD
        print(json.dumps(told))

    def _once(self, call, mode):
        recorder._ring.words[MODE] = mode
        self._events = []
        outcome = _outcome(call)
        gc.collect()  # an answer that was not read to its end is told of when it goes
        return outcome, self._events


def _outcome(call):
    try:
        return repr(call())
    except Exception as error:
        text = re.sub("0x[0-9a-f]+", "", str(error))
        return f"{[kind.__name__ for kind in type(error).__mro__[:3]]}: {text}"


def _shown(events):
    return [
        [kind, {name: value for name, value in fields.items() if name not in _PASSING}, len(data)]
        for kind, fields, data in events
    ]
