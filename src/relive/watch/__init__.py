"""Waits for fatal signals in a process tree, and holds the process at that moment so that it can be committed.

The tracer is a process of its own (``relive.watch.tracer``); ``Tracer`` is how the agent talks with it.
"""

from relive.watch.client import Attached, Released, Tracer
from relive.watch.messages import Event, EventsLost, Exited, Fatal

__all__ = ["Attached", "Event", "EventsLost", "Exited", "Fatal", "Released", "Tracer"]
