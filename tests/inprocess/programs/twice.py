"""Runs a scenario with the recorder recording, then again with the recorder answering; says what differed.

Usage: twice.py SCENARIO ADDRESS, with the recorder in it. SCENARIO is a file with ``main(address, keep)``, a function that is
called twice, with the same dict ``keep`` (where it leaves connections open for the second time), and yields what it saw.
Between the two it prints "recorded" and waits for a line: the server is stopped meanwhile. At the end it prints one JSON object.
Python 3.8 syntax: drivers are looked at in other Pythons, too.
"""

import importlib.util
import inspect
import json
import sys
from pathlib import Path

from relive_recorder import calls, context
from relive_recorder.recorder import REPLAY, recorder
from relive_recorder.ring import HEAD, HEADER_BYTES, MODE, RECORD_HEADER


class Event:
    def __init__(self, kind, fields, data):
        self.kind, self.fields, self.data = kind, fields, data


class Tape:
    """Every event of this process, as it stands in the ring, whoever wrote it."""

    def __init__(self):
        self._at = recorder._ring.words[HEAD]

    def take(self):
        ring, at = recorder._ring, self._at
        self._at = head = ring.words[HEAD]
        assert head - at <= ring.capacity, "the ring is too small for this scenario"
        begin = at % ring.capacity
        raw = ring._map[HEADER_BYTES + begin :] + ring._map[HEADER_BYTES : HEADER_BYTES + begin]
        taken, at, end = [], 0, head - at
        while at < end:
            length, meta, _, _ = RECORD_HEADER.unpack_from(raw, at)
            body = raw[at + RECORD_HEADER.size : at + RECORD_HEADER.size + length]
            seq, _, _, kind, thread, lane, _, fields = json.loads(body[:meta])
            fields = dict(fields, own_seq=seq, thread=thread, lane=lane)
            taken.append(Event(kind, fields, body[meta:]))
            at += RECORD_HEADER.size + length
        return taken


def shape(value):
    """A value with the types of all that is in it."""
    if isinstance(value, BaseException):
        return [type(value).__qualname__, [shape(one) for one in value.args]]
    if type(value) in (list, tuple):
        return [type(value).__qualname__, [shape(one) for one in value]]
    if type(value) is dict:
        return ["dict", [[shape(key), shape(one)] for key, one in value.items()]]
    return [type(value).__qualname__, repr(value)]


def see(scenario, address, keep):
    """What the scenario yields as one request, and at last the lane of what it would start next."""
    token = context.begin(context.Request(1, {}))
    try:
        seen = scenario.main(address, keep)
        if inspect.isasyncgen(seen):
            loop = keep["loop"]

            async def all_of_it():
                return [shape(one) async for one in seen] + [["lane", context.bear().number]]

            return loop.run_until_complete(all_of_it())
        return [shape(one) for one in seen] + [["lane", context.bear().number]]
    finally:
        context.end(token)


class Player:
    """Answers by content, in the recorded order."""

    def __init__(self, events):
        self.left = [event for event in events if "asked" in event.fields]
        self.misses = []

    def find(self, channel, asked):
        for event in self.left:
            if event.kind == channel.kind and event.fields["asked"] == json.loads(json.dumps(asked)):
                self.left.remove(event)
                fields = {key: one for key, one in event.fields.items() if key not in ("asked", "own_seq")}
                return calls.KeptAnswer(fields, self.data(event))
        simulated = channel.simulated(asked)
        if simulated is not None:
            return simulated
        self.misses.append(asked)
        raise calls.NoAnswer(f"no answer to {asked}")

    def data(self, event):
        if "file" not in event.fields:
            return event.data
        return (Path(recorder.options.rings) / event.fields["file"]).read_bytes()


def main():
    file, address = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("scenario", file)
    scenario = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scenario)
    keep = {}
    if inspect.isasyncgenfunction(scenario.main):
        import asyncio

        keep["loop"] = asyncio.new_event_loop()
    tape = Tape()
    first = see(scenario, address, keep)
    events = tape.take()
    print("recorded", flush=True)
    sys.stdin.readline()
    player = Player(events)
    calls.answer_with(player.find, lambda _kind, _source: None)
    recorder._ring.words[MODE] = REPLAY
    try:
        second = see(scenario, address, keep)
    except Exception as error:
        import traceback

        traceback.print_exc()
        second = [repr(error)]
    replayed = tape.take()
    told = [{"kind": one.kind, **one.fields} for one in events]
    again = [{"kind": one.kind, **one.fields} for one in replayed]
    print(
        json.dumps(
            {
                "first": first,
                "second": second,
                "events": told,
                "replayed": again,
                "misses": player.misses,
                "left": [one.fields["asked"] for one in player.left],
                "mode": recorder.mode(),
            }
        )
    )


if __name__ == "__main__":
    main()
