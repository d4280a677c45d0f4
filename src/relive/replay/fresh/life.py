"""The life of one fresh process in its sandbox, from its start to its judgement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relive.kernel.procfs import Mapping
from relive.model.failure import Where
from relive.model.outcome import End, InsideEvent, Outcome
from relive.model.reproduction import Attempt, ReproductionKind
from relive.recording.events import EventKind
from relive.replay.cause import missing_words
from relive.replay.fresh.attempt_plan import AttemptPlan, ReproduceOptions
from relive.replay.fresh.judge import Came, FreshJudgement, judge, judge_end
from relive.replay.fresh.raised import raised_in
from relive.replay.fresh.recorded_answers import is_whole, judged_events
from relive.replay.fresh.relocating import relocated
from relive.replay.fresh.request import SentRequest
from relive.replay.fresh.sending import Sent, send
from relive.replay.fresh.waiting import wait_until
from relive.replay.fresh.watching import SandboxWatch
from relive.replay.outcomes import (
    died_outcome,
    read_log,
    replayed_answer,
    with_fault,
    with_memory_used_up,
    with_worker_exit,
)
from relive.replay.played import played_words
from relive.replay.replay_input import hang_limit
from relive.replay.ring_collector import BranchDrain
from relive.replay.sequence import miss_words, misses_of, sequence_of
from relive.replay.verdict import outcome_words
from relive.sandbox.fresh_process import FreshProcess, SandboxDirectory

__all__ = ["FreshLife", "last_lines"]

_SETTLE = 1.0  # [s] after the answer, for the end of its handler
_SETTLE_LATE = 5.0  # [s] the same, where what failed had not been the handler
_LOG_LINES = 40
_NOTED = 5
_WITHIN_TLS = (
    "the service ends TLS itself: the request was sent within TLS, and its certificate was not checked"
)


def last_lines(place: SandboxDirectory) -> list[str]:
    """The end of what it wrote to its standard error."""
    return read_log(place.log("stderr"), 0)[-_LOG_LINES:]


@dataclass(slots=True)
class FreshLife:
    """One life; ``watch`` saw the sandbox from before its start, ``tell`` is called with a sentence on what is being done."""

    plan: AttemptPlan
    options: ReproduceOptions
    sandbox: FreshProcess
    watch: SandboxWatch
    drain: BranchDrain
    tell: Callable[[str], None]
    ready: float | None = None
    code: Sequence[Mapping] = ()
    is_encrypted: bool = False

    def live(self) -> Attempt:
        """Live it. The attempt has no number yet."""
        if self.plan.request is None:
            return self._judged(self._run_program())
        began = time.monotonic()
        seen: list[int] = []  # it may end right after it was seen to listen, such as for want of a server
        if not wait_until(self.sandbox, self.drain, lambda: self._sees_port(seen), self.options.limit):
            return self._not_started()
        self.ready = time.monotonic() - began
        self.tell(
            f"It listens on port {seen[0]} after {self.ready:.1f} s; sending {self.plan.request.words}."
        )
        came = self._send(self.plan.request, seen[0])
        if not came.is_taken and came.exit_status is not None:
            return self._not_started()
        return self._judged(came)

    def _sees_port(self, seen: list[int]) -> bool:
        port = self._port()
        if port is not None:
            seen.append(port)
        return bool(seen)

    def _port(self) -> int | None:
        """Where to send the request; None as long as nobody listens there."""
        ports = self.sandbox.listening_ports()
        wanted = self.plan.start.port
        if wanted is not None:
            return wanted if wanted in ports else None
        return min(ports, default=None)

    # -- a request -----------------------------------------------------------------------------------------------

    def _send(self, request: SentRequest, port: int) -> Came:
        address = self.plan.start.address
        self.watch.own(port)
        case = self.plan.case
        limit = hang_limit(case.hung_seconds) if case.hung_seconds is not None else self.options.limit
        sent = send(self.sandbox, self.drain, request, (address, port), limit, case.ended)
        self.is_encrypted = sent.is_encrypted
        number = self.plan.case.judged if self.plan.case.started is not None else None
        # What a thread or a task dies of may come after the answer.
        package = self.plan.case.package
        is_late = package is not None and package.where is not Where.HANDLER
        wait_until(
            self.sandbox,
            self.drain,
            lambda: self._has_handled(number) and (not is_late or bool(raised_in(self.drain.events, number))),
            _SETTLE_LATE if is_late else _SETTLE,
        )
        return Came(
            raised=raised_in(self.drain.events, number),
            status=sent.answer.status,
            how=sent.how,
            exit_status=self._exit_status(),
            events=self._events(number),
            is_answered=not sent.how,
            is_taken=sent.is_taken,
            missed=self._missed(),
            outcome=self._with_missing(
                self._outcome(sent, read_log(self.sandbox.place.log("stderr"), sent.log_from))
            ),
        )

    def _with_missing(self, outcome: Outcome) -> Outcome:
        """With what was not reached, and calls without an answer; one that went on ("pass") counts where it got nowhere."""
        misses = [miss for miss in misses_of(self.drain.events) if miss.policy != "pass"]
        return outcome.model_copy(update={"unreached": self.watch.unreached(), "misses": misses})

    def _outcome(self, sent: Sent, lines: list[str]) -> Outcome:
        """Of the request; where the service had died, of the process that died here, if one did."""
        outcome, recorded = replayed_answer(sent.answer, lines), self.plan.case.ended
        hung = self.plan.case.hung_seconds
        if hung is not None and (outcome.seconds or 0.0) >= hung:
            return Outcome(end=End.NO_ANSWER, seconds=outcome.seconds, log=lines, stack=outcome.stack)
        if recorded is None or recorded.end is not End.DIED:
            return outcome
        self.code = sent.code
        if sent.fault is not None:
            return with_fault(outcome, sent.fault)
        if self.sandbox.groups.oom_kills():
            return with_memory_used_up(outcome)
        if sent.worker_exit is not None:
            return with_worker_exit(outcome, sent.worker_exit)
        status = self.sandbox.wait_status
        return outcome if status is None else died_outcome(status, lines, outcome.seconds or 0.0)

    def _recorded(self) -> Outcome:
        """How it had ended, with addresses as this process would have them."""
        recorded = self.plan.case.ended
        assert recorded is not None
        if recorded.fault is None:
            return recorded
        fault = relocated(recorded.fault, self.plan.case.code, self.code)
        return recorded.model_copy(update={"fault": fault})

    def _has_handled(self, number: int | None) -> bool:
        """With None: whichever number it has here."""
        ended = (event for event in self.drain.events if event.kind is EventKind.HANDLING_ENDED)
        return any(number in (None, event.request) for event in ended)

    def _events(self, number: int | None) -> list[InsideEvent]:
        began = (e for e in self.drain.events if e.kind is EventKind.HANDLING_STARTED and e.request == number)
        first = next(began, None)
        return sequence_of(self.drain.events, first.fields["pid"], first.request) if first is not None else []

    # -- a program -----------------------------------------------------------------------------------------------

    def _run_program(self) -> Came:
        recorded, package = self.plan.case.raised, self.plan.case.package
        assert recorded is not None and package is not None  # of an answer there is a request

        def is_over() -> bool:
            return any(one.fingerprint == recorded.fingerprint for one in raised_in(self.drain.events, None))

        ends = package.where is Where.MAIN and not self.plan.case.is_job
        if wait_until(self.sandbox, self.drain, is_over, self.options.limit) and ends:
            # Its end follows; a service goes on after an exception in a thread.
            wait_until(self.sandbox, self.drain, lambda: self._exit_status() is not None, self.options.limit)
        self.drain.drain()
        raised = raised_in(self.drain.events, None)
        pid = next((e.fields["pid"] for e in self.drain.events if e.kind is EventKind.FAILURE), None)
        if pid is None:
            pid = next((e.fields["pid"] for e in self.drain.events), 0)
        return Came(
            raised=raised,
            how=f"it went on for {self.options.limit:g} s without failing",
            exit_status=self._exit_status(),
            events=sequence_of(self.drain.events, pid, 0),
            is_request=False,
            missed=self._missed(),
            outcome=self._with_missing(Outcome(end=End.NOTHING)),
        )

    def _missed(self) -> str | None:
        return next(
            (miss_words(miss) for miss in misses_of(self.drain.events) if miss.policy != "pass"), None
        )

    # -- what is said of it --------------------------------------------------------------------------------------

    def _exit_status(self) -> int | None:
        status = self.sandbox.wait_status
        if status is None:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _judged(self, came: Came) -> Attempt:
        case = self.plan.case
        recorded: list[InsideEvent] = []
        if self.plan.request is not None or (is_whole(case) and not case.is_job):
            events = judged_events(case, has_request=self.plan.request is not None)
            pid = case.pid if case.pid is not None else next((one.fields.get("pid", 0) for one in events), 0)
            recorded = sequence_of(events, pid, case.judged if self.plan.request else 0)
        status = case.recorded_status if self.plan.request is not None else None
        if case.raised is not None:
            made = judge(case.raised, status, recorded, came, self.options.ignore)
        else:
            made = judge_end(self._recorded(), recorded, came, self.options.ignore, case.usual)
        return self._attempt(made, came)

    def _attempt(self, made: FreshJudgement, came: Came) -> Attempt:
        misses = misses_of(self.drain.events)
        seal = self.sandbox.seal()
        return Attempt(
            number=0,
            kind=made.kind,
            missing=missing_words(came.outcome, is_fresh=True),
            difference=made.difference,
            evidence=made.evidence,
            unseen=made.unseen,
            played=played_words(came.outcome, self.drain.events or None),
            unreached=came.outcome.unreached,
            notes=[note for note in (*made.notes, *self._notes()) if note != made.difference],
            raised=made.raised,
            status=came.status,
            exit_status=came.exit_status,
            ended=outcome_words(came.outcome) if self.plan.case.raised is None else None,
            log=last_lines(self.sandbox.place),
            misses=misses,
            packets_left=seal.packets_left,
            refused=seal.refused,
            ready_seconds=self.ready,
        )

    def _notes(self) -> list[str]:
        """What had no recorded answer, was answered from elsewhere, or was lost."""
        misses = misses_of(self.drain.events)
        notes = [_WITHIN_TLS] if self.is_encrypted else []
        notes += [miss_words(miss) for miss in misses if miss.policy != "pass"][:_NOTED]
        early = [miss for miss in misses if miss.policy == "pass"]
        notes += [f"{miss_words(miss)}; it found a sealed network" for miss in early[:_NOTED]]
        left = len(misses) - len(notes) + self.is_encrypted
        if left > 0:
            notes.append(f"{left} more calls had no recorded answer")
        borrowed = [
            e for e in self.drain.events if e.kind is EventKind.NOTE and e.fields.get("about") == "beginning"
        ]
        if borrowed:
            notes.append(
                f"{len(borrowed)} calls of the request were answered with what the recorded process had been told when it began"
            )
        return [*notes, *self.drain.troubles, *self.watch.troubles()]

    def _not_started(self) -> Attempt:
        status = self._exit_status()
        raised = raised_in(self.drain.events, None)
        seal = self.sandbox.seal()
        port = self.plan.start.port
        where = f"on port {port}" if port is not None else "anywhere"
        how = f"it does not listen {where} after {self.options.limit:g} s"
        if status is not None:
            how = f"it ended with status {status}"
        if raised and status is not None:
            how += f": {raised[-1].type}: {raised[-1].text}"
        elsewhere = sorted(self.sandbox.listening_ports()) if status is None else []
        notes = (
            [f"it listens on port {', '.join(map(str, elsewhere))}: name one with --port"]
            if elsewhere
            else []
        )
        outcome = self._with_missing(Outcome(end=End.NOTHING))
        return Attempt(
            number=0,
            kind=ReproductionKind.COULD_NOT_START,
            missing=missing_words(outcome, is_fresh=True),
            difference=how,
            played=played_words(outcome, self.drain.events or None),
            unreached=outcome.unreached,
            notes=[*notes, *self._notes()],
            raised=raised[-1] if raised else None,
            exit_status=status,
            log=last_lines(self.sandbox.place),
            misses=misses_of(self.drain.events),
            packets_left=seal.packets_left,
            refused=seal.refused,
        )
