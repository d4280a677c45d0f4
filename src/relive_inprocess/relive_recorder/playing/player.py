"""The player: answers this process's calls and readings from a recording, while it lives again in a branch."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional, Set, Tuple

from relive_recorder import calls, context
from relive_recorder.playing.answer_index import AnswerIndex
from relive_recorder.playing.answers import Answers, RecordedEvent, Refused, read_answers, read_body
from relive_recorder.playing.clocks import Clocks
from relive_recorder.playing.difference import differing
from relive_recorder.playing.joining import Joined
from relive_recorder.playing.recognising import RecordedRequests
from relive_recorder.recorder import REPLAY, recorder

__all__ = ["Player", "begin", "begin_started", "play", "read_or_none", "recognise"]


class Player:
    """Made of one file of answers. Any thread may ask.

    Args:
        answers: None: there are none, so that every call is a miss.
        after: own_seq of the last event that has happened already.
        is_alike: any two secrets are equal: this process began with another key than the recorded one.
    """

    def __init__(
        self, directory: str, answers: Optional[Answers], after: int, *, is_alike: bool = False
    ) -> None:
        self._directory = directory
        self._is_alike = is_alike
        # Held for microseconds; a signal handler of the same thread may ask, too.
        self._asking = threading.RLock()
        self._index = AnswerIndex(is_alike=is_alike)
        self._clocks = Clocks()
        self._answers = answers
        self._children = list(answers.children) if answers is not None else []
        events = [one for one in answers.events if one.own_seq > after] if answers is not None else []
        self._index.fill(events)
        self._recorded_requests = RecordedRequests(events)
        self._elsewhere: Optional[List[RecordedRequests]] = None
        self._of: Dict[int, List[RecordedEvent]] = {}
        self._unknown: Set[int] = set()
        recorder.requests = max([recorder.requests, *(event.request for event in events)])

    # -- calls and readings --------------------------------------------------------------------------------------

    def find(self, channel: calls.Channel, asked: Dict[str, Any]) -> Optional[calls.KeptAnswer]:
        """See ``Channel.find``."""
        request, lane = context.here().number, context.lane()
        with self._asking:
            # Code outside of requests, and requests that the recording does not know, have no place of their own there.
            anywhere = request == 0 or request in self._unknown
            recorded = self._index.call(request, lane, channel.kind, asked, anywhere=anywhere)
            if recorded is not None:
                kept = self._kept(recorded)
                if kept is not None:
                    return kept
            simulated = channel.simulated(asked)
            if simulated is not None:
                return simulated
            nearest = self._nearest(request, lane, channel.kind, asked)
        self._miss(channel.kind, asked, nearest)
        return None

    def happened(self, channel: calls.Channel, asked: Dict[str, Any]) -> None:
        """A call that was under way at the commit got its own answer in time: the recorded one is not for the next such call."""
        request, lane = context.here().number, context.lane()
        with self._asking:
            self._index.call(request, lane, channel.kind, asked, anywhere=request == 0)

    def _kept(self, recorded: RecordedEvent) -> Optional[calls.KeptAnswer]:
        """None when its body is not there, or is none."""
        try:
            name = recorded.fields.get("file")
            data = recorded.body() if name is None else read_body(self._directory, name)
        except (OSError, ValueError) as fault:
            recorder.emit("note", {"about": "answers", "text": f"a recorded body is not there: {fault}"})
            return None
        return calls.KeptAnswer(recorded.fields, data)

    def _nearest(self, request: int, lane: int, kind: str, asked: Any) -> Optional[Dict[str, Any]]:
        """The recorded call that differs least, and where: of queries only of the same statement."""
        best: Optional[Dict[str, Any]] = None
        for one in self._index.candidates(request, lane, kind, asked):
            differs = differing(one.fields["asked"], asked)
            if best is None or len(differs) < len(best["differs"]):
                best = {"nearest": one.fields["asked"], "differs": differs}
        return best

    def _miss(self, kind: str, asked: Dict[str, Any], nearest: Optional[Dict[str, Any]]) -> None:
        policy = self.policy(kind)
        recorder.emit("miss", {"kind": kind, "asked": asked, "policy": policy, **(nearest or {})})
        if policy == "fail":
            where = f"; the nearest one differs in {', '.join(nearest['differs'][:3])}" if nearest else ""
            raise calls.NoAnswer(f"the recording has no answer to this {kind}{where}")

    def policy(self, kind: str) -> str:
        """What becomes of a miss: "fail" or "pass"."""
        policy = self._answers.policy if self._answers is not None else {}
        return policy.get(kind, policy.get("*", "fail"))

    def reading(self, kind: str, source: str) -> Optional[Tuple[Any, bool]]:
        """See ``calls.next_reading``; clocks go on behind the end of the recording."""
        if kind == "clock" and self._answers is not None and self._answers.clock == "real":
            return None
        request, lane = context.here().number, context.lane()
        with self._asking:
            found = self._index.reading(request, lane, kind, source)
            if found:
                if kind == "clock":
                    self._clocks.gave(source, found[0])
                return found[0], True
            beyond = self._clocks.beyond(source) if kind == "clock" else None
            return None if beyond is None else (beyond, False)

    def late(self, kind: str, fields: Dict[str, Any]) -> None:
        """A reading that was made before the commit is written down now: the recorded one is not for the next."""
        source = fields.get("source")
        if type(source) is str and "value" in fields:
            with self._asking:
                self._index.reading(context.here().number, context.lane(), kind, source)

    # -- requests ------------------------------------------------------------------------------------------------

    def recognise(self, about: Dict[str, Any]) -> int:
        """See ``recognise``."""
        with self._asking:
            known = self._recorded_requests.claim(about)
            if known is not None:
                return known.request
            number = recorder.next_request()
            self._claim_from_sibling(about, number)
            return number

    def _claim_from_sibling(self, about: Dict[str, Any], number: int) -> None:
        """A request that another worker had: the kernel chose this one now. Its answers come along, under a new number."""
        if self._elsewhere is None:
            self._elsewhere = []
            for name in self._answers.siblings if self._answers is not None else ():
                sibling = read_or_none(self._directory, name)
                if sibling is not None:
                    their_requests = RecordedRequests(sibling.events)
                    self._elsewhere.append(their_requests)
                    self._of[id(their_requests)] = sibling.events
        for their_requests in self._elsewhere:
            known = their_requests.claim(about)
            if known is not None:
                theirs = [event for event in self._of[id(their_requests)] if event.request == known.request]
                self._index.fill(theirs, renumbered=number)
                return
        self._unknown.add(number)

    # -- processes -----------------------------------------------------------------------------------------------

    def next_child(self) -> Optional[str]:
        """The file of the process that the running code forks next: of those of this lane, else of this request the first."""
        request, lane = context.here().number, context.lane()
        with self._asking:
            found = [one for one in self._children if one[1:] == [request, lane]]
            found = found or [one for one in self._children if one[1] == request]
            if not found and request == 0:
                found = self._children
            if not found:
                return None
            child = found[0]
            self._children = [one for one in self._children if one is not child]
            return str(child[0])

    def child(self, name: Optional[str]) -> "Player":
        """The player of a process that was just forked: all that its file holds is still to come."""
        if name is not None:
            answers = read_or_none(self._directory, name)
            return Player(self._directory, answers, 0, is_alike=self._is_alike)
        nothing = Player(self._directory, None, 0)
        if self._answers is not None:
            nothing._answers = Answers(
                {
                    "format": "relive-answers",
                    "version": 1,
                    "policy": self._answers.policy,
                    "clock": self._answers.clock,
                },
                [],
            )
        return nothing


_player: Optional[Player] = None
_next_child: Optional[str] = None


def begin(mode: int) -> None:
    """Called when this process finds itself in a branch (``recorder.on_brought_back``)."""
    if mode != REPLAY:
        return
    directory = f"{recorder.options.rings}/answers"
    answers = read_or_none(directory, f"{os.getpid()}.jsonl")
    play(Player(directory, answers, recorder.seq))


def begin_started(joined: Joined) -> None:
    """Called when this process was started in a replay, before it records anything."""
    directory = f"{recorder.options.rings}/answers"
    answers = read_or_none(directory, joined.name) if joined.name is not None else joined.nothing
    play(Player(directory, answers, 0, is_alike=True))


def recognise(about: Dict[str, Any]) -> int:
    """The number of a request that begins now, in a replay. A server's hook asks once for each request, in place of
    ``recorder.next_request()``, when ``recorder.mode()`` is REPLAY, and before its ``context.begin``.

    Args:
        about: ``method`` (str), ``target`` (str), ``peer`` ((host, port)), ``headers`` (pairs of str, scrubbed), as they are in the
            fields of ``handling-started``; ``body`` (bytes) where it is there by then. What is absent or None is not compared,
            but for method and target.

    Returns:
        The number that the request had in the recording; for one that is not there (any more) a number nobody had.
    """
    return _player.recognise(about) if _player is not None else recorder.next_request()


def play(player: Player) -> None:
    """Have this process's calls, readings and requests answered by a player, and its children's by what that makes for them."""
    global _player
    _player = player
    recorder.on_late = _late
    recorder.before_fork = _before_fork
    recorder.on_forked = _on_forked
    calls.answer_with(player.find, player.reading, player.happened)


def _late(kind: str, fields: Dict[str, Any]) -> None:
    if _player is not None:
        _player.late(kind, fields)


def _before_fork() -> None:
    global _next_child
    _next_child = _player.next_child() if _player is not None else None


def _on_forked() -> None:
    if _player is not None:
        play(_player.child(_next_child))


def read_or_none(directory: str, name: str) -> Optional[Answers]:
    """A file of answers; None, said in standard error, when it is not there or refused."""
    try:
        return read_answers(directory, name)
    except (Refused, OSError, MemoryError) as fault:
        text = f"relive: the recorded answers in {name} are refused, so no call is answered: {fault}\n"
        try:
            os.write(2, text.encode("utf-8", "replace"))
        except OSError:
            pass
        return None
