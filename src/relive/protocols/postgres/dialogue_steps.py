"""A recorded dialogue as steps: each message of the client with the bytes that the server answered it with.

Every byte of the server belongs to one step, and steps follow each other in it: their answers one after the other are all of it.
What the server said unasked (notifications, notices, changed parameters, the farewell of a server that stops) belongs to the step
before it: it is that step's *trail*, behind ``settled``.

The server answers in the order in which it was asked. After an error in the extended protocol it passes over everything up to the
next Sync; while COPY takes data, data, Sync and Flush are part of what was asked by the statement (their steps are ``content``).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from relive.protocols.call import Timed
from relive.protocols.postgres.framing import (
    BYTE,
    GSSENC,
    SSL,
    STARTUP,
    BackendFramer,
    FrontendFramer,
    Message,
)
from relive.protocols.postgres.messages import read_error
from relive.recording.dialogues import Dialogue, DialoguePiece, Tls, Way

__all__ = ["DialogueStep", "Transcript", "read_steps"]

_EXTENDED = frozenset("PBDEC")
_UNASKED = frozenset("NAS")
_NO_ANSWER = frozenset("HdcfX") | {"cancel"}
_COPY_CONTENT = frozenset("dcfSH")
_PASSED_OVER = _EXTENDED | frozenset("Hdcf")
_ANSWERS = {  # what a server may say to each message, besides _UNASKED
    SSL: frozenset((BYTE, "E")),
    GSSENC: frozenset((BYTE, "E")),
    STARTUP: frozenset("RKvEZ"),
    "p": frozenset("RKvEZ"),
    "Q": frozenset("TDCEIGHdcZ"),
    "F": frozenset("VEZ"),
    "P": frozenset("1E"),
    "B": frozenset("2E"),
    "C": frozenset("3E"),
    "D": frozenset("tTnE"),
    "E": frozenset("DCEIsGHdc"),
    "S": frozenset("EZ"),
}
_LAST = {  # of these, what ends the answer
    SSL: frozenset((BYTE, "E")),
    GSSENC: frozenset((BYTE, "E")),
    STARTUP: frozenset("EZ"),
    "p": frozenset("EZ"),
    "Q": frozenset("Z"),
    "F": frozenset("Z"),
    "P": frozenset("1E"),
    "B": frozenset("2E"),
    "C": frozenset("3E"),
    "D": frozenset("TnE"),
    "E": frozenset("CIsE"),
    "S": frozenset("Z"),
}
_AUTH_DONE = (0, 12)  # AuthenticationOk and AuthenticationSASLFinal: the client has nothing to say to them


@dataclass(slots=True)
class DialogueStep:
    """One message of the client.

    Attributes:
        answer: the messages of the server that belong to it, trail included.
        begin, settled, end: places in the server's direction: of the answer, of its trail, of what comes after it.
        whole: the answer is complete (also where there is none to be).
        skipped: passed over by the server after an error.
        content: part of what a COPY of an earlier step was given.
        copy_at: place behind its CopyInResponse, None where there is none.
    """

    message: Message
    answer: list[Message] = field(default_factory=list)
    begin: int = 0
    settled: int = 0
    end: int = 0
    whole: bool = False
    skipped: bool = False
    content: bool = False
    copy_at: int | None = None

    @property
    def kind(self) -> str:
        """Of its message."""
        return self.message.kind

    @property
    def failed(self) -> bool:
        """The server answered with an error; a farewell in its trail is none."""
        return any(message.kind == "E" and message.begin < self.settled for message in self.answer)


class Transcript:
    """The steps of a dialogue.

    Attributes:
        broken: why what follows ``rest`` makes no sense, None where all does.
        rest: places (up, down) from which on it makes none.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self.dialogue = dialogue
        self.steps: list[DialogueStep] = []
        self.broken: str | None = None
        self._pieces = {way: dialogue.of(way) for way in Way}
        self._begins = {way: [piece.at for piece in self._pieces[way]] for way in Way}
        self.rest = (0, 0)

    def piece(self, way: Way, place: int) -> DialoguePiece:
        """The piece that holds the byte at a place."""
        index = bisect_right(self._begins[way], place) - 1
        return self._pieces[way][max(0, index)]

    def asked_ns(self, step: DialogueStep) -> int:
        """When the last byte of its message was there."""
        return self.piece(Way.UP, step.message.end - 1).mono_ns

    def chunks(self, begin: int, end: int, since_ns: int) -> tuple[Timed, ...]:
        """Bytes of the server between two places as they came; ``since_ns``: when they were asked for."""
        found: list[Timed] = []
        at = begin
        while at < end:
            piece = self.piece(Way.DOWN, at)
            data = piece.data[at - piece.at : end - piece.at]
            if not data:
                break  # not kept
            before = self.piece(Way.DOWN, at - 1) if at else None
            since = max(since_ns, before.mono_ns) if before is not None else since_ns
            found.append(Timed(0 if before is piece else max(0, piece.mono_ns - since), data))
            at += len(data)
        return tuple(found)


def read_steps(dialogue: Dialogue) -> Transcript:
    """Never raises for what was said: the transcript ends where it stops making sense."""
    transcript = Transcript(dialogue)
    _Reading(transcript).run()
    return transcript


class _Reading:
    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._steps = transcript.steps
        self._head = 0  # index of the step that the next answer belongs to
        self._begun = False  # it has an answer already
        self._at = 0  # place behind the last message of the server

    def run(self) -> None:
        dialogue = self._transcript.dialogue
        asked = FrontendFramer()
        self._steps += map(DialogueStep, asked.feed(dialogue.text(Way.UP)))
        answered = BackendFramer()
        answered.expect_bytes(sum(1 for step in self._steps if step.kind in (SSL, GSSENC)))
        messages = answered.feed(dialogue.text(Way.DOWN))
        broken = asked.broken
        for message in messages:
            broken = self._assign(message) or broken
            if broken is not None and self._at != message.end:
                break
            if message.kind == BYTE and message.body != b"N" and dialogue.tls is not Tls.OPENED:
                broken = "encrypted"
                break
        else:
            broken = broken or answered.broken
            if answered.broken is None and answered.rest:
                self._skip_part(len(answered.rest))
        self._settle_rest()
        self._transcript.broken = broken
        if broken == "encrypted":
            del self._steps[self._head :]
        up = self._steps[-1].message.end if self._steps else 0
        self._transcript.rest = (up, self._at)

    # -- one message ---------------------------------------------------------------------------------------------------

    def _assign(self, message: Message) -> str | None:
        """Give it to its step; or why it belongs to none."""
        head = self._next_head()
        if head is None or (not self._begun and self._is_before(message, head)):
            if message.kind in _UNASKED or _is_farewell(message):
                return self._trail(message)
            if head is None:
                return f"an answer {message.kind!r} that nobody asked for"
        if message.kind not in _UNASKED and message.kind not in _ANSWERS[head.kind]:
            return f"an answer {message.kind!r} to {head.kind!r}"
        if not self._begun:
            head.begin, self._begun = message.begin, True
        head.answer.append(message)
        self._at = head.end = head.settled = message.end
        if message.kind == "G":
            self._copy_begins(head, message)
        if _ends(head, message):
            self._whole(head, message)
        return None

    def _skip_part(self, size: int) -> None:
        """The beginning of a message of which the rest never came."""
        head = self._next_head()
        if head is None:
            return
        if not self._begun:
            head.begin = self._at
        self._at += size
        head.end = head.settled = self._at

    def _is_before(self, message: Message, step: DialogueStep) -> bool:
        """Whether it was said before the step was asked."""
        said = self._transcript.piece(Way.DOWN, message.begin).seq
        return said < self._transcript.piece(Way.UP, step.message.end - 1).seq

    def _trail(self, message: Message) -> str | None:
        index = self._head - 1
        while index >= 0 and not self._steps[index].end:
            index -= 1
        before = self._steps[index] if index >= 0 else None
        if before is None:
            return f"{message.kind!r} before anything was asked"
        before.answer.append(message)
        self._at = before.end = message.end
        return None

    def _next_head(self) -> DialogueStep | None:
        while self._head < len(self._steps):
            step = self._steps[self._head]
            if not step.content and not step.skipped and step.kind not in _NO_ANSWER:
                return step
            if not step.whole:
                self._pass(step)
            self._head += 1
        return None

    def _pass(self, step: DialogueStep) -> None:
        step.whole = True
        step.begin = step.settled = self._at
        step.end = 0  # it has no trail either

    def _whole(self, head: DialogueStep, message: Message) -> None:
        head.whole = True
        index = self._head
        self._head += 1
        self._begun = False
        if head.copy_at is not None and message.kind == "E" and head.kind == "E":
            self._skip_from(self._behind_copy(index))
        elif message.kind == "E" and head.kind in _EXTENDED:
            self._skip_from(self._head)

    def _skip_from(self, index: int) -> None:
        while index < len(self._steps) and self._steps[index].kind in _PASSED_OVER:
            self._steps[index].skipped = True
            index += 1

    def _copy_begins(self, head: DialogueStep, message: Message) -> None:
        head.copy_at = message.end
        for step in self._steps[self._head + 1 : self._behind_copy(self._head)]:
            step.content = True

    def _behind_copy(self, index: int) -> int:
        """Index of the first step behind what a COPY of the step at ``index`` was given."""
        at = index + 1
        while at < len(self._steps) and self._steps[at].kind in _COPY_CONTENT:
            at += 1
            if self._steps[at - 1].kind in "cf":
                return at
        given = [
            number for number, step in enumerate(self._steps[index + 1 : at], index + 1) if step.kind == "d"
        ]
        return given[-1] + 1 if given else index + 1

    def _settle_rest(self) -> None:
        """Places of what has no answer: where it would have been."""
        at = 0
        for step in self._steps:
            if step.end:
                at = step.end
            else:
                step.begin = step.settled = step.end = at
            if step.kind in _NO_ANSWER or step.content or step.skipped:
                step.whole = True


def _ends(step: DialogueStep, message: Message) -> bool:
    if message.kind == "R":
        return int.from_bytes(message.body[:4], "big") not in _AUTH_DONE
    return message.kind in _LAST[step.kind]


def _is_farewell(message: Message) -> bool:
    return message.kind == "E" and read_error(message.body).get("severity") in ("FATAL", "PANIC")
