"""HTTP/1.0 and 1.1: calls read from a dialogue, and a server that answers as the recorded ones did.

Message boundaries are those of ``relive.recording.http1``. What a call is found by is in ``asking.py``, and compared as
``relive.protocols.matching`` says.
"""

from relive.protocols.http.protocol import Http, OnMiss
from relive.protocols.http.s3 import S3

__all__ = ["S3", "Http", "OnMiss"]
