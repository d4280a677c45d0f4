"""A connection that a commit holds goes on where it stood.

What had been asked by then is answered with the recorded bytes, from the first that the service does not have. What had been asked
in part (messages before a Sync, data of a COPY) is taken as if it came now, and what the service has of its answer is left out.
"""

from __future__ import annotations

from relive.protocols.call import CallEnd
from relive.protocols.postgres.calls import Decoded, decode_dialogue
from relive.protocols.postgres.dialogue_steps import DialogueStep, Transcript
from relive.protocols.postgres.framing import FrontendFramer
from relive.protocols.postgres.server_info import parts_of
from relive.protocols.postgres.session import PendingAnswer, PostgresSession
from relive.protocols.postgres.statement_state import Role
from relive.protocols.postgres.statements import state_after
from relive.protocols.session import Act, Resume
from relive.recording.dialogues import Way

__all__ = ["resume_session"]

_WAITS = frozenset(("S", "H", "Q", "F", "p", "startup", "ssl", "gssenc", "cancel", "X"))


def resume_session(session: PostgresSession, where: Resume) -> list[Act]:
    """Put a new session in the state of a recorded connection; what has to be done first."""
    transcript, whole = decode_dialogue(where.dialogue)
    session.own = where.dialogue.number
    steps = transcript.steps
    asked = sum(1 for step in steps if step.message.end <= where.up)
    closed = _closed(steps, asked)
    past = Decoded(transcript, closed)
    session.statements, session.database, session.state = past.statements, past.database, past.state or "I"
    session.began = session.state
    for index in range(closed):
        if index in whole.call_of:
            session.pool.use_up(whole.calls[whole.call_of[index]])
    _reopen(session, transcript, whole, asked)
    _continue_cycle(session, steps[:closed], whole)
    _answer_the_rest(session, transcript, whole, closed, where)
    for step in steps[closed:asked]:
        session.handle_message(step.message)
    begin = steps[asked - 1].message.end if asked else 0
    opened = any(step.kind == "startup" for step in steps[:asked])
    session.framer = FrontendFramer(begin, opened=opened)
    session.framer.feed(where.dialogue.text(Way.UP, begin, where.up))
    return session.acts.drain()


def _closed(steps: list[DialogueStep], asked: int) -> int:
    """How many steps are over: those after them were asked, but the server waits for more."""
    closed = 0
    for index, step in enumerate(steps[:asked]):
        if step.content:
            if step.kind in "cf":
                closed = index + 1
            continue
        if step.copy_at is not None:
            given = [
                one for one in range(index + 1, len(steps)) if steps[one].content and steps[one].kind in "cf"
            ]
            if given and given[0] >= asked:
                return closed
        if step.kind in _WAITS:
            closed = index + 1
    return closed


def _reopen(session: PostgresSession, transcript: Transcript, whole: Decoded, asked: int) -> None:
    """What its opening told; passwords that are still to come."""
    opening = next((call for call in whole.calls if call.asked.get("statement") == "CONNECT"), None)
    if opening is None:
        return
    session.user = opening.asked["parameters"]["user"]
    parts = parts_of(opening)
    if parts is not None:
        session.learn_reported(parts)
    for step in transcript.steps[asked:]:
        if step.kind == "p":
            since = transcript.asked_ns(step)
            answer = transcript.chunks(step.begin, step.settled, since)
            session.passwords.append((step.message.body, answer))


def _continue_cycle(session: PostgresSession, closed: list[DialogueStep], whole: Decoded) -> None:
    """Calls since the last ReadyForQuery: their Sync is still to come."""
    begin = len(closed)
    while begin and closed[begin - 1].kind not in ("S", "Q", "F", "p", "startup"):
        begin -= 1
    if begin and closed[begin - 1].content:  # Sync within a COPY is none
        begin = next((number for number in range(begin - 1, 0, -1) if not closed[number].content), 0)
    numbers = dict.fromkeys(
        whole.call_of[index]
        for index in range(begin, len(closed))
        if index in whole.call_of and not closed[index].skipped
    )
    if begin < len(closed) and closed[begin].kind in ("Q", "F"):
        return
    for number in numbers:
        call = whole.calls[number]
        parts = parts_of(call)
        if parts is None or parts.simple:
            continue
        session.cycle.append(PendingAnswer(parts, call, own=True, done=Role.EXECUTE))
        session.state = state_after(session.state, call.asked["statement"], parts.tags)
        if parts.failed is not None and parts.failed is not Role.SYNC:
            session.skipping = True
            session.state = "E" if session.state == "T" else session.state


def _answer_the_rest(
    session: PostgresSession, transcript: Transcript, whole: Decoded, closed: int, where: Resume
) -> None:
    steps, acts = transcript.steps[:closed], session.acts
    last = steps[-1] if steps else None
    settled, end = (last.settled, last.end) if last is not None else (0, 0)
    is_raw = transcript.broken is not None and closed == len(transcript.steps)
    since = transcript.asked_ns(last) if last is not None else 0
    if is_raw:
        settled = end = len(where.dialogue.text(Way.DOWN))
    if where.down < end:
        acts.send(transcript.chunks(where.down, settled, since))
        acts.send(transcript.chunks(max(where.down, settled), end, since), unasked=True)
    else:
        acts.skip = where.down - end
    if is_raw:
        acts.end(CallEnd.OPEN, 0)
        return
    stopped = next((index for index, step in enumerate(steps) if not step.whole), None)
    if stopped is not None:
        call = whole.calls[whole.call_of[stopped]] if stopped in whole.call_of else None
        acts.end(call.end if call is not None else CallEnd.OPEN, call.end_after_ns if call is not None else 0)
    elif closed == len(transcript.steps) and closed and whole.calls:
        parts = parts_of(whole.calls[-1])
        if parts is not None and parts.trail.ended is not None:
            acts.follow(type(parts.trail)((), parts.trail.ended, parts.trail.after_ns))
