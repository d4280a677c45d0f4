"""Recordings: what crossed the border of a service, in order.

``proxy.py`` records HTTP/1.1, ``log.py`` writes and ``reading.py`` reads the files that ``layout.py`` specifies,
``exchanges.py`` makes requests and answers of the events. This room imports nothing of Relive but ``relive.errors``.
"""

from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Ended, Exchange, Exchanges
from relive.recording.reader import Cursor, Place, Recording, TornTail
from relive.recording.writer import RecordingWriter

__all__ = [
    "Cursor",
    "Ended",
    "Event",
    "EventKind",
    "Exchange",
    "Exchanges",
    "Place",
    "Recording",
    "RecordingWriter",
    "TornTail",
]
