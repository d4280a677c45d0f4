"""Recordings: what crossed the border of a service, in order.

``writer`` writes and ``reader`` reads the files that ``layout`` specifies; ``exchanges`` makes requests and answers of the events.
Who records is in ``relive.proxies``, and in the services themselves (``rings``).
"""

from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, ExchangeEnd, Exchanges
from relive.recording.reader import Recording, RecordingHead, RecordPosition, TornTail
from relive.recording.writer import RecordingWriter

__all__ = [
    "Event",
    "EventKind",
    "Exchange",
    "ExchangeEnd",
    "Exchanges",
    "RecordPosition",
    "Recording",
    "RecordingHead",
    "RecordingWriter",
    "TornTail",
]
