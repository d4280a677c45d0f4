"""Events of the failing request that the recording inside still has: for incidents that none lie beside, and for what came later.

What cannot be read leaves a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relive.errors import ReliveError
from relive.incidents.report.handled import MOST_EVENTS, SLACK_NS, Handled, handled
from relive.incidents.report.origins import Origins, ValueOrigin, needles
from relive.model.failure import ErrorPackage
from relive.recording.both_ends import BothEnds
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange
from relive.recording.reader import Recording

__all__ = ["events_since", "origins_of_values", "recorded_events", "sentence"]


def recorded_events(
    directory: Path, package: ErrorPackage | None, exchange: Exchange | None, notes: list[str]
) -> Handled:
    """Events of the request from the recording itself, for incidents that none lie beside."""
    recording = Recording(directory)
    if not recording.segments():
        return Handled([])
    try:
        if exchange is not None:
            return _noted(handled(recording, exchange), notes)
        if package is not None and package.request is not None:
            own = (
                event
                for event in recording.events()
                if event.request == package.request.number and event.fields.get("pid") == package.pid
            )
            return _noted(_bounded(own), notes)
    except ReliveError as error:
        notes.append(sentence(error))
    return Handled([])


def events_since(directory: Path, kept: list[Event], notes: list[str]) -> list[Event]:
    """What the request did after the incident was written down, up to its handler's end, where that is still recorded."""
    own = [event for event in kept if event.request]
    if not own or any(event.kind is EventKind.HANDLING_ENDED for event in own):
        return []
    pid, request = own[-1].fields.get("pid"), own[-1].request
    found: list[Event] = []
    try:
        for event in Recording(directory).events(after=max(event.seq for event in kept)):
            if event.mono_ns > own[-1].mono_ns + SLACK_NS:
                break
            if event.request == request and event.fields.get("pid") == pid:
                if event.kind is EventKind.HANDLING_STARTED:  # of a later process with that pid
                    break
                found.append(event)
                if event.kind is EventKind.HANDLING_ENDED:
                    break
    except ReliveError as error:
        notes.append(sentence(error))
    return found


def origins_of_values(directory: Path, events: list[Event], notes: list[str]) -> list[ValueOrigin]:
    """From the recording, as far as it reaches back."""
    own = [event for event in events if event.request]
    origins = Origins(own)
    if not origins.names:
        return []
    until = max(event.mono_ns for event in own)
    try:
        for event in Recording(directory).events_naming(needles(origins.names)):
            if event.mono_ns > until:
                break
            origins.look_at(event)
    except ReliveError as error:
        notes.append(sentence(error))
    return origins.found()


def _bounded(events: Iterator[Event]) -> Handled:
    found = BothEnds(MOST_EVENTS)
    for event in events:
        found.add(event)
    return Handled(found.held, left_out=found.left_out)


def _noted(found: Handled, notes: list[str]) -> Handled:
    if found.left_out:
        notes.append(f"{found.left_out} events in the middle of the request are not told: there are too many")
    return found


def sentence(error: ReliveError) -> str:
    """An error as a note: what happened, and why."""
    return f"{error.message}: {error.cause}" if error.cause else error.message
