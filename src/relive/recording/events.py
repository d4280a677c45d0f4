"""The one event type: what crossed the border of a service, in the order it crossed.

A life of a service can have three recordings: one by the proxy, of the bytes that clients and service sent each other; one
by the recorder in its Python processes (*inside*), of what they did for each request; and one of the connections that the
service opened itself (*egress*), see ``dialogues.py``. Events of the latter have in ``fields``
also ``pid`` (int: of the process, in its capsule), ``own_seq`` (int: the event's number in that process), ``thread`` (int) and
``lane`` (int: the thread or task within the request, from 1; with ``WITHIN_A_CALL`` added where it was part of a call that is
recorded itself); their ``request`` is numbered in each process.

Terms: a *request* is numbered once, over the whole life of a recording; a *connection* is one client connection with
the one service connection behind it, numbered the same way; *seq* is the place of an event in the recording.
How events lie on disk is in ``layout.py``; how they become exchanges is in ``exchanges.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["WITHIN_A_CALL", "Event", "EventKind", "is_within_a_call"]

WITHIN_A_CALL = 1 << 52


class EventKind(StrEnum):
    """What happened. The value is what stands on disk: it is never renamed, only added to.

    Fields are listed as ``name`` (type); one that is absent says nothing. ``data`` is empty unless named here.

    ========================  =======================================================================================
    recorder-started          A proxy began to write; connections of an earlier one are gone. ``listen`` (str),
                              ``upstream`` (str), ``pid`` (int), ``logs`` (list of str); ``capture`` ("beside") where it
                              records from packets: then ``local_port`` is the client's own everywhere.
    connection-opened         The service took (or refused) the connection behind a client's. ``client`` (str),
                              ``local_port`` (int: the proxy's end of the service connection, None if refused);
                              ``from_middle`` (True) of one that stood before, and whose beginning is not recorded.
    connection-closed         Both sides are gone. ``sent`` (int: bytes the service's socket took), ``requests`` (int);
                              after an upgrade also ``up_bytes`` and ``down_bytes``, with ``up_cut``/``down_cut`` and
                              ``up_blake2b``/``down_blake2b`` if not all of a direction was kept; ``lost`` (True) where
                              its end was not seen, since packets are missing.
    request-started           ``data``: the raw head, blank line included. Recorded before the service can see a byte
                              of it. ``client`` and ``local_port`` as in connection-opened, ``log_offsets`` (dict
                              of path to size in bytes). Of HTTP/2 ``stream`` (int), and the head is written as of
                              HTTP/1, with ``:authority`` as ``host`` and the version ``HTTP/2``.
    request-body              ``data``: raw body bytes, chunk framing and trailers included.
    request-ended             The client has sent all of it. ``bytes`` (int: raw size of the body); if not all was
                              kept, ``cut`` (int: bytes missing at the end) and ``blake2b`` (hex, 32 bytes, of the
                              whole raw body). Of HTTP/2 ``trailers`` (list of pairs), if there were some.
    interim-answer            ``data``: the raw head of a 1xx answer; of a 101 only where the connection goes on in
                              HTTP/2, whose first stream has the answer itself. ``status`` (int).
    answer-started            ``data``: the raw head of the final answer. ``status`` (int); ``by`` ("relive") when
                              the proxy itself answers because the service cannot.
    answer-body               ``data``: as in request-body.
    answer-ended              The answer is whole. ``bytes``, ``cut``, ``blake2b``, ``trailers`` as in request-ended, but of
                              a long answer off packets, of which the kernel took only the beginning, no ``blake2b``;
                              ``log_offsets``; ``upgraded`` (True) when what follows is a stream.
    stream-to-service         ``data``: bytes from the client after an upgrade (WebSocket, CONNECT), of ``request``; with
                              ``request`` 0, on a connection that is not HTTP/1. Of the latter ``cut`` (int: bytes that followed
                              ``data`` and were not kept), ``ended`` (True: the client sends no more).
    stream-to-client          ``data``: bytes from the service after an upgrade, or after an answer that is not
                              HTTP/1.1 (then a note says so first), or as above, with ``cut``.
    request-abandoned         The client went away before its answer was whole. ``how`` ("closed", "reset", or
                              "malformed": its body broke the protocol).
    answer-broken             The service ended the connection before the answer was whole. ``how`` ("closed",
                              "reset"); ``reused`` (int: answers this connection gave before: when it is not 0 and
                              no byte of this answer came, the service may just have closed an idle connection).
    commit-taken              ``commit`` (str: its id), ``cursor`` (int: seq of the last event before it),
                              ``closed_ns`` (int: how long the gate was closed; None if it was not).
    process-started           A Python process with the recorder in it began. ``python`` (str), ``argv`` (list of str), and
                              ``forked_from`` (int: pid of its parent) or, of one that was started by exec, ``command`` (list of
                              str: its command line) and ``quick`` (bool: with the recorder's part in C; else
                              ``why_not_quick``, a sentence).
    handling-started          The service's server began with a request. ``server`` ("asgi", "wsgi", ...), ``method``,
                              ``target`` (str), ``peer`` (list: host, port), ``headers`` (list of pairs). ``data``: its body
                              where it is there by then.
    handling-body             The body of a request as the service has read it, when that was whole, or as far as it was at the
                              request's end. ``bytes`` (int); ``file``, ``cut``, ``blake2b`` as in ``bodies.py`` beside
                              ``calls.py``. ``data``: the body.
    handling-ended            The handler gave its answer. ``status`` (int), ``headers``, ``ns`` (int: how long it took),
                              ``error`` (dict) when an exception came out; ``messages_in``, ``messages_out`` (int) of a
                              websocket; ``by`` ("file") when the server sends a file itself; ``left`` (true) when the next
                              request began in its thread before its answer had ended: later pieces are not here. ``data``:
                              the answer's body; of a long one the beginning: ``bytes`` (int: of all), ``cut`` (int: bytes
                              missing at the end).
    query, http-call,         A call that the service made, when it had ended; fields and data in
    redis-command, s3-call,   ``src/relive_inprocess/relive_recorder/calls.py``. Files and subprocesses are calls too.
    file-read, subprocess
    rows                      Rows fetched from a query: ``query`` (int: seq of the query event, in its process), ``rows`` (packed;
                              long values in them are cut), ``rows_cut`` (int: rows that are missing at the end), and in a replay
                              ``has_placeholders`` (true: some stand in a value that is cut).
    clock, random             A reading: ``source`` (str), ``value``.
                              Of calls and readings in a replay: ``played`` (true) where the recording answered; ``simulated``
                              (true) where nothing was recorded, and every server answers alike.
    environment-read          ``name`` (str), ``value`` (str, scrubbed; absent when it is not set).
    log-record                ``logger``, ``level`` (str), ``text`` (scrubbed), ``where`` (str: "file:line").
    failure                   An exception that escaped. ``type``, ``text``, ``fingerprint``, ``where`` (str), ``at`` (list: file,
                              line, function of the innermost frame of the service's own code); of its request ``server``,
                              ``method``, ``target``, ``peer``; ``throw`` (str: name of the file in the rings' directory
                              for which the failing thread waits, if it does). ``data``: the error package (JSON, see
                              ``relive.model.failure``), empty when too many were made.
    dialogue-opened           The service opened a connection, ``connection``. ``to``, ``origin`` (lists: address, port; the other
                              end as the service named it, and its own), ``connect_ns`` (int: how long the real one took),
                              ``error`` (str: errno name such as "ECONNREFUSED", when there was none), ``up_base``,
                              ``down_base`` (int: TCP sequence number of the first byte of each direction, as the service's
                              kernel counts; absent when not known), ``tls`` (str, absent without: "opened", what follows is
                              what was inside; "closed", it is what was on the wire). Said again of a dialogue that goes on
                              when its ``tls`` has become known, and in each later segment: then with ``up_at``, ``down_at``
                              (int: bytes so far), and when it was seen first stands only in the first.
    dialogue-up               ``data``: bytes from the service. ``at`` (int: how many came before in this direction).
    dialogue-down             ``data``: bytes to the service. ``at`` the same.
    dialogue-ended            One direction has ended. ``way`` ("up", "down"), ``how`` ("closed", "reset", "lost": the recorder went
                              away), ``bytes`` (int: all of the direction), ``cut`` (int: bytes at its end that were not kept).
    name-lookup               A question to a name server, over UDP. ``to`` (list: address, port), ``question``, ``data``: raw
                              messages; no ``data`` when no answer came. ``ns`` (int: how long it took).
    miss                      In a replay: a call without a recorded answer. ``asked``, ``kind``, ``nearest`` (dict, or absent),
                              ``differs`` (list of str: paths of the fields that differ), ``policy`` (str).
    note                      Something the recorder did by itself. ``about`` ("gate", "hold", "disk", "refused",
                              "unframed", "chaos", "capture"), ``text`` (str); about the disk also ``lost`` (int: events not
                              recorded before this one), about capture ``lost`` (int: packets), and ``stood`` (True) where what
                              was said before on a connection is missing, about chaos ``ms`` (a delay
                              in a replay, at the place that ``text`` names).
                              ``data``: the refused bytes, at most 64 KiB.
    ========================  =======================================================================================
    """

    RECORDER_STARTED = "recorder-started"
    CONNECTION_OPENED = "connection-opened"
    CONNECTION_CLOSED = "connection-closed"
    REQUEST_STARTED = "request-started"
    REQUEST_BODY = "request-body"
    REQUEST_ENDED = "request-ended"
    INTERIM_ANSWER = "interim-answer"
    ANSWER_STARTED = "answer-started"
    ANSWER_BODY = "answer-body"
    ANSWER_ENDED = "answer-ended"
    STREAM_TO_SERVICE = "stream-to-service"
    STREAM_TO_CLIENT = "stream-to-client"
    REQUEST_ABANDONED = "request-abandoned"
    ANSWER_BROKEN = "answer-broken"
    COMMIT_TAKEN = "commit-taken"
    PROCESS_STARTED = "process-started"
    HANDLING_STARTED = "handling-started"
    HANDLING_BODY = "handling-body"
    HANDLING_ENDED = "handling-ended"
    QUERY = "query"
    ROWS = "rows"
    HTTP_CALL = "http-call"
    REDIS_COMMAND = "redis-command"
    S3_CALL = "s3-call"
    FILE_READ = "file-read"
    SUBPROCESS = "subprocess"
    CLOCK = "clock"
    RANDOM = "random"
    ENVIRONMENT_READ = "environment-read"
    LOG_RECORD = "log-record"
    FAILURE = "failure"
    DIALOGUE_OPENED = "dialogue-opened"
    DIALOGUE_UP = "dialogue-up"
    DIALOGUE_DOWN = "dialogue-down"
    DIALOGUE_ENDED = "dialogue-ended"
    NAME_LOOKUP = "name-lookup"
    MISS = "miss"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that crossed the border.

    Attributes:
        seq: place in the recording, from 1, rising. A number that is missing is an event that was lost to a full disk
            or dropped by retention; numbers are never given twice.
        mono_ns: CLOCK_MONOTONIC of the recording host in nanoseconds. Not comparable across a reboot.
        wall_ns: CLOCK_REALTIME in nanoseconds since 1970.
        connection: number of the client connection, from 1; 0 when the event belongs to none.
        request: number of the request, from 1; 0 when the event belongs to none.
        data: bytes as they were on the wire.
        fields: what else is known, see ``EventKind``. Holds only what msgpack can hold.
    """

    seq: int
    mono_ns: int
    wall_ns: int
    kind: EventKind
    connection: int = 0
    request: int = 0
    data: bytes = b""
    fields: Mapping[str, Any] = field(default_factory=dict)


def is_within_a_call(event: Event) -> bool:
    """A replay, in which the call is answered, does not come here."""
    lane = event.fields.get("lane")
    return isinstance(lane, int) and lane >= WITHIN_A_CALL
