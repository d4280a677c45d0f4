"""The calls of a dialogue that is HTTP.

``extra`` of a call: ``volatile`` (dict: headers that are not matched), ``interim`` (int: bytes of the answer before the final
head), ``head`` (int: bytes of the final head), ``chunked`` (bool), ``until_close`` (bool: the answer's body ends with the
connection), ``closes`` (bool: the connection ends after it), ``stream`` (bool: bytes follow, in which there are no messages),
``cut`` (bool: the question did not end), ``method`` (str), ``version`` (str: of the answer).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from relive.protocols.call import Call, CallEnd
from relive.protocols.http.asking import answer_of, asked_of
from relive.protocols.opaque import turns
from relive.protocols.timing import Timing
from relive.recording.dialogues import Dialogue, Tls, Way
from relive.recording.http1 import (
    AnswerFramer,
    AnswerHead,
    Body,
    Cut,
    MessageEnd,
    Piece,
    RequestFramer,
    RequestHead,
    Violation,
)

__all__ = ["closes_after", "read_calls", "scheme_of"]


@dataclass(slots=True)
class _Draft:
    """A call that is being read: places of its parts, None while they are not known."""

    head: RequestHead
    up_begin: int
    up_end: int | None = None
    body: list[bytes] = field(default_factory=list)
    answer: AnswerHead | None = None
    down_begin: int | None = None
    final_begin: int = 0
    down_end: int = 0
    whole: bool = False
    early: bool = False  # the final head came before the question was whole
    interim: bool = False


def read_calls(dialogue: Dialogue) -> list[Call]:
    """All calls, see ``Protocol.calls``."""
    return _Reading(dialogue).calls()


def scheme_of(dialogue: Dialogue) -> str:
    """Of its URLs."""
    return "https" if dialogue.tls is Tls.OPENED else "http"


def closes_after(request: RequestHead, answer: AnswerHead) -> bool:
    """Whether the connection ends with an answer: both ends have to want it to stay (RFC 9112, 9.3)."""
    return ends_with_connection(request, answer) or not (
        _stays(request.version, request.headers) and _stays(answer.version, answer.headers)
    )


def ends_with_connection(request: RequestHead, answer: AnswerHead) -> bool:
    """Whether nothing else says where the answer's body ends; some answers have none, whatever their heads say."""
    has_body = request.method != b"HEAD" and answer.status >= 200 and answer.status not in (204, 304)
    return has_body and answer.lasts_until_close


def _stays(version: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> bool:
    words = {
        word.strip().lower()
        for name, value in headers
        if name in (b"connection", b"proxy-connection")
        for word in value.split(b",")
    }
    return b"close" not in words and (version != b"1.0" or b"keep-alive" in words)


class _Reading:
    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._timing = Timing(dialogue)
        self._requests, self._answers = RequestFramer(), AnswerFramer()
        self._up = self._down = 0  # places behind what was given out
        self._drafts: list[_Draft] = []
        self._unanswered: deque[_Draft] = deque()
        self._asking: _Draft | None = None
        self._answering: _Draft | None = None
        self._stream: tuple[int, int] | None = None  # where the bytes without messages begin
        self._junk: tuple[int, int] | None = None  # where it is no HTTP any more

    def calls(self) -> list[Call]:
        for piece in self._dialogue.pieces:
            if self._stream is not None or self._junk is not None:
                break
            if piece.way is Way.UP:
                self._read_requests(self._requests.feed(piece.data))
            else:
                self._read_answers(self._answers.feed(piece.data))
        if self._stream is None and self._junk is None:
            self._read_endings()
        return self._made()

    def _read_endings(self) -> None:
        endings = sorted(self._dialogue.endings.items(), key=lambda one: (one[1].mono_ns, one[1].seq))
        for way, ending in endings:
            if ending.how == "closed" and not ending.cut:
                if way is Way.UP:
                    self._read_requests(self._requests.eof())
                else:
                    self._read_answers(self._answers.eof())

    def _read_requests(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, RequestHead):
                self._asking = _Draft(piece, self._up)
                self._drafts.append(self._asking)
                self._unanswered.append(self._asking)
                self._answers.expect(piece.method)
            elif isinstance(piece, Body) and self._asking is not None:
                self._asking.body.append(piece.raw)
            elif isinstance(piece, Violation):
                self._junk = (self._up, self._down)
                return
            self._up += len(piece.raw)
            if isinstance(piece, MessageEnd) and self._asking is not None:
                self._asking.up_end, self._asking = self._up, None

    def _read_answers(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if self._stream is not None:
                return
            if isinstance(piece, AnswerHead):
                self._read_answer_head(piece)
            elif isinstance(piece, Violation):
                self._junk = (self._up, self._down)
                return
            elif isinstance(piece, Cut):
                self._read_cut_head(piece)
            self._down += len(piece.raw)
            if self._answering is not None:
                self._answering.down_end = self._down
                if isinstance(piece, MessageEnd):
                    self._answered(self._answering)

    def _read_answer_head(self, head: AnswerHead) -> None:
        if self._answering is None:
            self._answering = self._unanswered.popleft()
            self._answering.down_begin = self._down
        draft = self._answering
        if head.is_interim:
            draft.interim = True
            return
        draft.answer, draft.final_begin = head, self._down
        unsent = draft.head.expects_continue and not draft.interim and draft.up_end is None
        draft.early = unsent or draft.up_end is None

    def _read_cut_head(self, piece: Cut) -> None:
        """The beginning of a head that never became whole belongs to an answer all the same."""
        if piece.raw and self._answering is None and self._unanswered:
            self._answering = self._unanswered.popleft()
            self._answering.down_begin = self._down

    def _answered(self, draft: _Draft) -> None:
        draft.whole, self._answering = True, None
        assert draft.answer is not None
        if draft.answer.status == 101 or (
            draft.head.method == b"CONNECT" and 200 <= draft.answer.status < 300
        ):
            self._stream = (self._up, self._down)
        elif self._requests.waits_for_answer:
            self._read_requests(self._requests.resume())

    def _made(self) -> list[Call]:
        calls = [self._call(index, draft) for index, draft in enumerate(self._drafts)]
        if self._stream is not None:
            calls += turns(self._dialogue, self._timing, *self._stream, len(calls))
        elif self._junk is not None:
            calls += turns(self._dialogue, self._timing, *self._junk_places(), len(calls))
        return calls

    def _junk_places(self) -> tuple[int, int]:
        """From where on nothing belongs to a call."""
        assert self._junk is not None
        up, down = self._junk
        return up, max([down, *(draft.down_end for draft in self._drafts)])

    def _call(self, index: int, draft: _Draft) -> Call:
        timing = self._timing
        up_end = (
            draft.up_end if draft.up_end is not None else min(self._up + self._requests.held, len(timing.up))
        )
        begin = draft.down_begin
        if begin is None:
            begin = max([0, *(one.down_end for one in self._drafts[:index])])
        down_end = max(begin, draft.down_end)
        if draft.down_begin is not None and not draft.whole and self._junk is None:
            down_end = len(timing.down)  # the beginning of a head that was held
        unsent = draft.early and draft.up_end is None
        question = asked_of(
            draft.head,
            None if unsent else b"".join(draft.body),
            scheme=scheme_of(self._dialogue),
            to=self._dialogue.to,
        )
        how, when = timing.end()
        end = CallEnd.ANSWERED if draft.whole else how
        closes = draft.answer is not None and draft.whole and closes_after(draft.head, draft.answer)
        ended: int | None = timing.answered_ns(down_end - 1) if draft.whole else when
        answer = draft.answer
        return Call(
            kind=question.kind,
            asked=question.asked,
            answer=answer_of(answer) if answer is not None else None,
            end=end,
            dialogue=self._dialogue.number,
            index=index,
            to=self._dialogue.to,
            asked_mono_ns=timing.asked_ns(draft.up_begin),
            ended_mono_ns=ended,
            up=(draft.up_begin, up_end),
            down=(begin, down_end),
            pieces=timing.pieces(up_end, begin, down_end),
            end_after_ns=timing.end_after_ns(up_end, down_end) if closes or not draft.whole else 0,
            extra={
                "volatile": question.volatile,
                "interim": draft.final_begin - begin if answer is not None else down_end - begin,
                "head": len(answer.raw) if answer is not None else 0,
                "chunked": answer is not None and answer.length is None and not answer.lasts_until_close,
                "until_close": answer is not None and ends_with_connection(draft.head, answer),
                "closes": closes,
                "stream": draft.whole
                and answer is not None
                and self._stream is not None
                and index == len(self._drafts) - 1,
                "cut": draft.up_end is None and not unsent,
                "method": draft.head.method.decode("latin-1"),
                "version": answer.version.decode("latin-1") if answer is not None else "1.1",
            },
        )
