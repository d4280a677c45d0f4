"""S3: HTTP whose calls are of kind S3_CALL, as the recorder in Python processes tells them apart (its ``kinds/s3.py``).

Calls are recognised one by one, whatever the connection is called. An answer is given with its very bytes, ranges, parts of uploads
and lists included; of a presigned URL the signature and what it covers of the moment are not compared.
"""

from __future__ import annotations

from typing import ClassVar

from relive.protocols.http.asking import url_of
from relive.protocols.http.protocol import Http
from relive.protocols.http.reading import scheme_of
from relive.recording.dialogues import Dialogue, Way
from relive.recording.http1 import RequestFramer, RequestHead
from relive_inprocess.relive_recorder.kinds.s3 import operation_of

__all__ = ["S3"]

_BEGINNING = 1 << 16  # [bytes]


class S3(Http):
    """Connections that begin with a call of S3."""

    name: ClassVar[str] = "s3"

    def recognises(self, dialogue: Dialogue) -> bool:
        if not super().recognises(dialogue):
            return False
        first = next(iter(RequestFramer().feed(dialogue.text(Way.UP, 0, _BEGINNING))), None)
        if not isinstance(first, RequestHead):
            return False
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in first.headers}
        url = url_of(first, scheme_of(dialogue), dialogue.to)
        return operation_of(first.method.decode("latin-1"), url, headers) is not None
