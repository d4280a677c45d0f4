"""Recordings: what crossed the border of a service, in order.

``proxy.py`` records HTTP/1.1, ``log.py`` writes and ``reading.py`` reads the files that ``layout.py`` specifies,
``exchanges.py`` makes requests and answers of the events. This room imports nothing of Relive but ``relive.errors``.
"""

from relive.record.events import Event, EventKind
from relive.record.exchanges import Ended, Exchange, Exchanges
from relive.record.log import RecordingWriter
from relive.record.reading import Cursor, Place, Recording, TornTail

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
