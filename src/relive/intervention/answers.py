"""A recorded step with another answer: an event from inside, or a call of the border. Pure. docs/why.md says what a kind takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from relive.errors import ChangeUnfit
from relive.intervention.grammar import AnswerChange, Delay, Failure, HttpAnswer, Instead, Shift
from relive.intervention.steps import Step
from relive.intervention.trees import packed_like, with_value_at
from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.http.rewriting import body_of_answer, with_answer
from relive.protocols.matching import uncompressed
from relive.protocols.postgres import rewriting as postgres
from relive.protocols.redis import rewriting as redis
from relive.recording.events import Event, EventKind

__all__ = ["answer_tree", "columns_of", "with_change"]

_HTTP = (EventKind.HTTP_CALL, EventKind.S3_CALL)
_OF_A_BODY = ("file", "bytes", "cut", "blake2b", "pieces", "decoded", "stage", "whole", "error")
_ENDS = {"reset": CallEnd.RESET, "closed": CallEnd.CLOSED, "silent": CallEnd.OPEN}
_BROKEN: Mapping[str, tuple[str, list[Any]]] = {
    "reset": ("builtins.ConnectionResetError", [104, "Connection reset by peer"]),
    "closed": ("http.client.RemoteDisconnected", ["Remote end closed connection without response"]),
    "silent": ("builtins.TimeoutError", ["timed out"]),
}
_OF_REDIS: Mapping[str, str] = {
    "reset": "redis.exceptions.ConnectionError",
    "closed": "redis.exceptions.ConnectionError",
    "silent": "redis.exceptions.TimeoutError",
    "error": "redis.exceptions.ResponseError",
}


def answer_tree(step: Step) -> Any:
    """What of an answer can be changed in part: rows, a JSON body (else its text), a value. ChangeUnfit: it was not kept whole."""
    if step.kind in _HTTP:
        body = _text(step, body_of_answer(step.call) if step.call is not None else _inside_body(step))
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    answer = step.call.answer if step.call is not None else _fields(step).get("answer")
    if step.kind is EventKind.QUERY:
        return _rows(step, answer)
    if step.is_reading:
        return _fields(step)["value"]
    if step.call is None and _fields(step).get("answer_in_data"):
        return _from_data(step)
    return answer


def columns_of(step: Step) -> list[str]:
    """Names of a query's columns; none where they are not known."""
    answer = step.call.answer if step.call is not None else _fields(step).get("answer")
    names = answer.get("columns") if isinstance(answer, Mapping) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def with_change(step: Step, change: AnswerChange) -> Event | Call:
    """The event or call of a step as it is to be answered. Raises ChangeUnfit where that cannot be."""
    made = _changed_call(step, step.call, change) if step.call is not None else _changed_event(step, change)
    if made is None:
        raise _unfit(
            change, f"a {step.name.label} step cannot be changed in this way", _TAKES[step.name.label]
        )
    return made


_TAKES = {
    "http": "give a status, a body, delay:TIME, or fail:reset, fail:closed, fail:silent",
    "s3": "give a status, a body, delay:TIME, or fail:reset, fail:closed, fail:silent",
    "query": "give rows as a list of lists, delay:TIME, or fail:error:TEXT, fail:reset, fail:silent",
    "redis": "give a value as JSON, delay:TIME, or fail:error:TEXT, fail:reset, fail:silent",
    "bytes": "give a text, delay:TIME, or fail:reset, fail:closed, fail:silent",
    "clock": "give a number, a moment or a shift such as +1h",
    "random": "give a value as JSON",
}


# -- calls of the border -------------------------------------------------------------------------------------------------


def _changed_call(step: Step, call: Call, change: AnswerChange) -> Call | None:
    to = change.to
    try:
        if isinstance(to, Delay):
            return _later(call, to.ns)
        if isinstance(to, Failure):
            return _failing(call, to, change)
        if isinstance(to, HttpAnswer):
            return with_answer(call, to.status, to.body.encode() if to.body is not None else None)
        if isinstance(to, Instead):
            return _answering(step, call, _given(step, change, to))
    except postgres.Unwritable as fault:
        raise _unfit(change, str(fault), _TAKES[step.name.label]) from fault
    return None


def _answering(step: Step, call: Call, value: Any) -> Call | None:
    if step.kind is EventKind.QUERY:
        return postgres.with_rows(call, value)
    if step.kind is EventKind.REDIS_COMMAND:
        return redis.with_value(call, value)
    if step.kind in _HTTP:
        return with_answer(call, None, json.dumps(value).encode())
    if isinstance(value, str):
        wait = sum(one.after_ns for one in call.pieces)
        pieces = (Timed(wait, value.encode("utf-8", "surrogateescape")),)
        return replace(call, answer={"data": value}, end=CallEnd.ANSWERED, pieces=pieces)
    return None


def _later(call: Call, ns: int) -> Call:
    if call.kind is EventKind.QUERY:
        return postgres.with_delay(call, ns)
    if call.pieces:
        return replace(call, pieces=(Timed(ns, call.pieces[0].data), *call.pieces[1:]))
    return replace(call, end_after_ns=ns)


def _failing(call: Call, failure: Failure, change: AnswerChange) -> Call | None:
    end = _ENDS.get(failure.how)
    if end is not None:
        if call.kind is EventKind.QUERY:
            return postgres.with_end(call, end)
        return replace(call, answer=None, end=end, pieces=(), end_after_ns=0)
    if failure.how != "error":
        raise _unfit(
            change,
            "at the border there are bytes and no exceptions",
            "write fail:reset, fail:closed or fail:silent",
        )
    if call.kind is EventKind.QUERY:
        return postgres.with_error(call, failure.text or "made to fail by relive what-if")
    return redis.with_error(call, failure.text) if call.kind is EventKind.REDIS_COMMAND else None


# -- events from inside --------------------------------------------------------------------------------------------------


def _changed_event(step: Step, change: AnswerChange) -> Event | None:
    event, to = step.event, change.to
    assert event is not None
    if isinstance(to, Delay):
        raise _unfit(
            change,
            "the recorder inside the service answered it, and answers are given at once there",
            "record the border instead (--record-egress --no-recorder), where times are kept",
        )
    if step.is_reading:
        return _read_otherwise(event, change)
    if isinstance(to, Failure):
        return _raising(step, event, to, change)
    if isinstance(to, HttpAnswer):
        return _http_answer(step, event, to)
    if isinstance(to, Instead):
        value = _given(step, change, to)
        if step.kind in _HTTP:
            return _http_answer(step, event, HttpAnswer(None, json.dumps(value)))
        if step.kind is EventKind.QUERY:
            answer = {**event.fields["answer"], "rows": value, "rowcount": len(value)}
            return _with_answer(event, answer)
        return _with_answer(event, value)
    return None


def _with_answer(event: Event, answer: Any) -> Event:
    """Answered so, in the event itself."""
    gone = (*_OF_A_BODY, "answer_in_data")
    fields = {name: value for name, value in event.fields.items() if name not in gone}
    return replace(event, fields={**fields, "answer": answer}, data=b"")


def _http_answer(step: Step, event: Event, to: HttpAnswer) -> Event:
    known = event.fields.get("answer")
    was: Mapping[str, Any] = (
        known if isinstance(known, Mapping) else {"status": 200, "reason": "", "headers": []}
    )
    body = to.body.encode() if to.body is not None else _inside_body(step)
    dropped = ("content-encoding", "transfer-encoding", "content-length")
    headers = [pair for pair in was["headers"] if str(pair[0]).lower() not in dropped]
    status = to.status if to.status is not None else was["status"]
    reason = was["reason"] if status == was["status"] else ""
    answer = {"status": status, "reason": reason, "headers": [*headers, ["content-length", str(len(body))]]}
    made = _with_answer(event, answer)
    return replace(made, fields={**made.fields, "bytes": len(body)}, data=body)


def _raising(step: Step, event: Event, failure: Failure, change: AnswerChange) -> Event | None:
    kind, args = _exception(step, failure, change)
    text = failure.text or ", ".join(str(one) for one in args)
    error: dict[str, Any] = {"type": kind, "args": {"$": ["tuple", args]}, "text": text}
    if kind == "builtins.ConnectionResetError" and len(args) == 2:
        error |= {"errno": args[0], "strerror": args[1]}
    gone = (*_OF_A_BODY, "answer", "answer_in_data")
    fields = {name: value for name, value in event.fields.items() if name not in gone}
    if step.kind in _HTTP:
        fields |= {"stage": "answer", "whole": False}
    return replace(event, fields={**fields, "error": error}, data=b"")


def _exception(step: Step, failure: Failure, change: AnswerChange) -> tuple[str, list[Any]]:
    """(type, arguments) of what the service is to see."""
    words = [failure.text] if failure.text else []
    if step.kind is EventKind.REDIS_COMMAND and failure.how in _OF_REDIS:
        return _OF_REDIS[failure.how], words or ["Connection closed by server."]
    if step.kind in _HTTP and failure.how in _BROKEN:
        kind, args = _BROKEN[failure.how]
        return kind, words or args
    if failure.how in (*_ENDS, "error"):
        raise _unfit(
            change,
            "the recorder inside the service answered it, and which exception its library would raise is not known",
            "name the exception: fail:psycopg.OperationalError:TEXT",
        )
    return (failure.how if "." in failure.how else f"builtins.{failure.how}"), words


def _read_otherwise(event: Event, change: AnswerChange) -> Event | None:
    recorded, to = event.fields["value"], change.to
    if isinstance(to, Shift):
        value = _shifted(recorded, to.ns, str(event.fields["source"]))
    elif isinstance(to, Instead) and to.is_moment:
        value = _at(recorded, str(to.value), str(event.fields["source"]), change)
    elif isinstance(to, Instead):
        value = with_value_at(recorded, change.path, to.value, written=change.written)
    else:
        return None
    if isinstance(recorded, int | float) and type(value) is not type(recorded):
        raise _unfit(
            change,
            f"{event.fields['source']} gives {type(recorded).__name__} and no {type(value).__name__}",
            "give one",
        )
    return replace(event, fields={**event.fields, "value": value})


def _shifted(recorded: Any, ns: int, source: str) -> Any:
    if isinstance(recorded, Mapping):
        text, fold = recorded["$"][1:3]
        return {
            "$": [
                "datetime",
                (datetime.fromisoformat(text) + timedelta(microseconds=ns / 1000)).isoformat(),
                fold,
            ]
        }
    return recorded + ns if source.endswith("_ns") else float(recorded) + ns / 1e9


def _at(recorded: Any, text: str, source: str, change: AnswerChange) -> Any:
    """A moment as a clock tells it; without a zone it is UTC, but for clocks that tell none themselves."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as fault:
        raise _unfit(change, f"{text!r} is no moment: {fault}", "write 2026-11-23T12:00:00") from fault
    if isinstance(recorded, Mapping):
        zone = datetime.fromisoformat(recorded["$"][1]).tzinfo
        moment = (
            moment.replace(tzinfo=None)
            if zone is None
            else moment
            if moment.tzinfo
            else moment.replace(tzinfo=zone)
        )
        return {"$": ["datetime", moment.isoformat(), 0]}
    if not source.startswith("time.time"):
        raise _unfit(change, f"{source} counts from no moment", "give a number, or a shift such as +1h")
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return round(seconds * 1e9) if source.endswith("_ns") else seconds


# -- what was recorded ---------------------------------------------------------------------------------------------------


def _given(step: Step, change: AnswerChange, to: Instead) -> Any:
    """The whole value that the step is to give."""
    recorded = answer_tree(step)
    if change.path:
        return with_value_at(
            recorded, change.path, to.value, written=change.written, columns=columns_of(step)
        )
    if step.kind is not EventKind.QUERY:
        return packed_like(recorded, to.value)
    if not isinstance(to.value, list) or not all(isinstance(row, list) for row in to.value):
        raise _unfit(change, "rows are a list of lists", 'write [[1, "tea"]], or [] for none')
    width = len(columns_of(step)) or (len(recorded[0]) if recorded else None)
    if width is not None and any(len(row) != width for row in to.value):
        raise _unfit(
            change, f"a row of it has {width} values", f"columns are {', '.join(columns_of(step)) or width}"
        )
    return [packed_like(_example(recorded, at), row) for at, row in enumerate(to.value)]


def _example(rows: list[Any], at: int) -> Any:
    """A row of the recorded types: that in the same place, its NULLs as in other rows."""
    if not rows:
        return None
    like = rows[min(at, len(rows) - 1)]
    return [
        value if value is not None else next((row[place] for row in rows if row[place] is not None), None)
        for place, value in enumerate(like)
    ]


def _rows(step: Step, answer: Any) -> list[Any]:
    if not isinstance(answer, Mapping):
        raise _gone(step, "it was answered with an error")
    if answer.get("rows_cut"):
        raise _gone(step, f"{answer['rows_cut']} of its rows were not kept")
    rows = answer.get("rows")
    if isinstance(rows, list):
        return rows
    return (
        list(_from_data(step))
        if step.event is not None and (step.event.data or "file" in step.event.fields)
        else []
    )


def _from_data(step: Step) -> Any:
    event = step.event
    assert event is not None
    if "file" in event.fields or event.fields.get("cut"):
        raise _gone(step, "it is long, and lies in a file of its own")
    try:
        return json.loads(event.data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as fault:
        raise _gone(step, "it cannot be read") from fault


def _inside_body(step: Step) -> bytes:
    event = step.event
    assert event is not None
    if "file" in event.fields or event.fields.get("cut"):
        raise _gone(step, "it is long, and lies in a file of its own")
    answer = event.fields.get("answer")
    headers = answer.get("headers", ()) if isinstance(answer, Mapping) else ()
    encoding = next((str(pair[1]) for pair in headers if str(pair[0]).lower() == "content-encoding"), "")
    return event.data if event.fields.get("decoded") else uncompressed(event.data, encoding)


def _text(step: Step, body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as fault:
        raise _gone(step, "its body is no text") from fault


def _fields(step: Step) -> Mapping[str, Any]:
    assert step.event is not None
    return step.event.fields


def _gone(step: Step, cause: str) -> ChangeUnfit:
    return ChangeUnfit(
        f"the answer to {step.name} cannot be changed in part",
        cause=cause,
        remedy="give a whole answer, or fail:TYPE:TEXT",
    )


def _unfit(change: AnswerChange, cause: str, remedy: str) -> ChangeUnfit:
    return ChangeUnfit(f"{change.written[:120]!r} cannot be changed", cause=cause, remedy=remedy)
