"""A live connection of a restored service to its PostgreSQL server, answered from the recording.

Questions are looked up when the client begins to wait (Query, Sync, Flush): only then are a Parse, its Bind and its Execute known
together, as the recorded call is. The answers to the single messages are then given one by one, in the order of this client.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.postgres.actions import Actions
from relive.protocols.postgres.answer_parts import Parts, body_of, without_rows_described
from relive.protocols.postgres.answers import encoded_opening
from relive.protocols.postgres.builtin_answers import aborted_parts, known_parts
from relive.protocols.postgres.calls import asked_to_cancel, asked_to_connect, asked_to_function
from relive.protocols.postgres.framing import BackendFramer, FrontendFramer, Message
from relive.protocols.postgres.messages import build, error, read_query, read_startup, ready
from relive.protocols.postgres.server_info import ServerInfo, parts_of
from relive.protocols.postgres.statement_state import Role, StatementState, Unit, asked_of, copied_of, learn
from relive.protocols.postgres.statements import ends_transaction, is_read, state_after
from relive.protocols.session import Act, Session
from relive.recording.events import EventKind

__all__ = ["OnMiss", "PendingAnswer", "PostgresSession"]

OnMiss = Literal["answer", "reset"]  # with an error of PostgreSQL's, or by breaking the connection

QUERY = EventKind.QUERY
_AUTHENTICATED = build("R", b"\0\0\0\0")
_NEWEST_MINOR = 2
_BATCH_MOST = 1 << 30  # [bytes] of messages that wait for a Sync


@dataclass(slots=True)
class PendingAnswer:
    """A call that is being answered.

    Attributes:
        call: recorded; None where the answer is known without.
        own: it was recorded on the connection that this one continues: what came unasked after it comes again.
        done: the last role that was answered.
    """

    parts: Parts
    call: Call | None = None
    own: bool = False
    done: int = 0


@dataclass(slots=True)
class _Copying:
    """A COPY that takes data: the client has been told to send it."""

    statement: str
    asked: dict[str, Any]
    unit: Unit | None
    begun: int
    data: bytearray


class PostgresSession(Session):
    """See the module. Attributes are for ``resuming.py``.

    Attributes:
        own: number of the recorded connection that this one continues, None for none.
        state: that of ReadyForQuery.
        cycle: what was answered since the last ReadyForQuery, with the state at its beginning in ``began``.
        skipping: everything up to the next Sync is passed over, after an error.
        passwords: while a recorded authentication goes on: (message of the client, answer) in their order.
    """

    def __init__(
        self,
        pool: Pool,
        number: int,
        server_info: ServerInfo,
        to: tuple[str, int],
        on_miss: OnMiss = "answer",
    ) -> None:
        self.pool = pool
        self.server_info = server_info
        self.acts = Actions()
        self.statements = StatementState()
        self.framer = FrontendFramer()
        self.database = ""
        self.user = ""
        self.own: int | None = None
        self.state = self.began = "I"
        self.cycle: list[PendingAnswer] = []
        self.skipping = False
        self.passwords: deque[tuple[bytes, tuple[Timed, ...]]] = deque()
        self.reported: Mapping[str, str] = {}
        self._number = number
        self._on_miss = on_miss
        self._to = to
        self._server = f"{to[0]}:{to[1]}"
        self._batch: list[Message] = []
        self._batched = 0
        self._copying: _Copying | None = None

    def feed(self, data: bytes) -> list[Act]:
        """As ``Session.feed``."""
        if self.acts.over:
            return []
        for message in self.framer.feed(data):
            if not self.acts.over:
                self.handle_message(message)
        if self.framer.broken is not None:
            text = f"Relive: this is not PostgreSQL's protocol: {self.framer.broken}"
            self.acts.say_now(error("08P01", text, severity="FATAL"))
            self.acts.close()
        return self.acts.drain()

    def hang_up(self) -> list[Act]:
        """As ``Session.hang_up``: a server closes its direction too."""
        self.acts.close()
        return self.acts.drain()

    # -- messages --------------------------------------------------------------------------------------------------------

    def handle_message(self, message: Message) -> None:
        """One message of the client."""
        match message.kind:
            case "P" | "B" | "D" | "E" | "C":
                self._gather(message)
            case "S":
                self._sync()
            case "H":
                if self._copying is None:
                    self._answer_batch()
            case "Q" | "F":
                self._alone(message)
            case "d":
                if self._copying is not None:
                    self._copying.data += message.body
            case "c" | "f":
                self._end_copy(message.kind == "f")
            case "ssl" | "gssenc":
                self.acts.say_now(b"N")
            case "startup":
                self._open(message)
            case "p":
                self._authenticate(message)
            case "cancel":
                self.pool.claim(QUERY, asked_to_cancel(self._server), connection=self._number, simulated=True)
                self.acts.close()
            case _:  # Terminate
                self.acts.close()

    def _gather(self, message: Message) -> None:
        self._batch.append(message)
        self._batched += len(message.body)
        if self._batched > _BATCH_MOST:
            self.acts.say_now(
                error("54000", "Relive: more than 1 GiB was sent without a Sync", severity="FATAL")
            )
            self.acts.close()

    # -- opening ---------------------------------------------------------------------------------------------------------

    def _open(self, message: Message) -> None:
        asked = asked_to_connect(self._server, message.body)
        self.database, self.user = asked["database"], asked["parameters"]["user"]
        found = self.pool.claim(
            QUERY, asked, connection=self._number, dialogue=self.own, again=True, simulated=True
        )
        call = found.call
        parts = parts_of(call) if call is not None else None
        if call is not None and parts is not None and not found.again:
            self.own = call.dialogue
            if parts.failed is not None or parts.stops is not None:
                self.acts.send(parts.answers[Role.EXECUTE])
                self.acts.end(CallEnd.CLOSED if parts.failed is not None else call.end, call.end_after_ns)
                return
        if parts is None or parts.failed is not None or parts.stops is not None:
            parts = self.server_info.opening(self._to, self.database, self.user)
        self._negotiate(message, parts)
        self._welcome(parts, PendingAnswer(parts, call, own=not found.again))

    def _negotiate(self, message: Message, parts: Parts) -> None:
        """NegotiateProtocolVersion, where the client asks for more than there is and the recorded server does not say so."""
        startup = read_startup(message.body)
        if startup is None or body_of(parts.answers[Role.EXECUTE])[:1] == b"v":
            return
        minor, parameters = startup
        more = [name for name in parameters if name.startswith("_pq_.")]
        if minor > _NEWEST_MINOR or more:
            names = b"".join(name.encode("utf-8", "replace") + b"\0" for name in more)
            newest = (3 << 16) + min(minor, _NEWEST_MINOR)
            body = newest.to_bytes(4, "big") + len(more).to_bytes(4, "big") + names
            self.acts.say_now(build("v", body))

    def _welcome(self, parts: Parts, answer: PendingAnswer) -> None:
        chunks = parts.answers[Role.EXECUTE]
        self.acts.send(chunks)
        self.learn_reported(parts)
        self.state = self.began = "I"
        if answer.own:
            self.acts.follow(parts.trail)

    def learn_reported(self, parts: Parts) -> None:
        """Which parameters the server tells of."""
        messages = BackendFramer().feed(body_of(parts.answers.get(Role.EXECUTE, ())))
        self.reported = encoded_opening(messages).get("parameters", {})

    def _authenticate(self, message: Message) -> None:
        """The commit holds a connection that was authenticating. What was sent then is answered as it was; else it is taken."""
        if not self.passwords:
            return
        sent, answer = self.passwords.popleft()
        if sent == message.body:
            self.acts.send(answer)
            return
        self.passwords.clear()
        parts = self.server_info.opening(self._to, self.database, self.user)
        if not body_of(parts.answers[Role.EXECUTE]).startswith(_AUTHENTICATED):
            self.acts.say_now(_AUTHENTICATED)
        self._welcome(parts, PendingAnswer(parts))

    # -- simple queries --------------------------------------------------------------------------------------------------

    def _alone(self, message: Message) -> None:
        """A Query or a FunctionCall: answered up to ReadyForQuery."""
        if self._copying is not None:  # the client gave up copying; a server would say so
            self._copying = None
        self._answer_batch()
        if self.skipping or self.acts.over:
            return
        if message.kind == "F":
            asked, statement = asked_to_function(self._server, self.database, message.body), ""
        else:
            statement = read_query(message.body)
            asked = asked_of(self._server, self.database, statement)
            if self._begins_copy(statement, asked, None):
                return
        self._answer_alone(self._find(asked, statement, None), statement)

    def _answer_alone(self, found: PendingAnswer | PoolMatch, statement: str, since: int = 0) -> None:
        if isinstance(found, PoolMatch):
            self._miss(found)
        else:
            self._say_alone(found, statement, since)
        if not self.acts.over:
            self._ready()

    def _say_alone(self, answer: PendingAnswer, statement: str, since: int) -> None:
        """``since``: bytes of the answer that were said already."""
        parts = answer.parts
        chunks = parts.answers.get(Role.EXECUTE, ())
        if not parts.simple and parts.failed is None:  # it was asked in the extended protocol
            described = self._described(parts, statement, ())
            if described is None and any(m.kind == "D" for m in BackendFramer().feed(body_of(chunks))):
                self._fail("the recorded answer has no description of its columns", {})
                return
            if described is not None and described[:1] == b"T":
                chunks = (Timed(chunks[0].after_ns if chunks else 0, described), *_at_once(chunks))
        elif parts.failed is not None:
            chunks = parts.answers.get(parts.failed, ())
        self._say_part(answer, Role.EXECUTE, _behind(chunks, since), statement)

    # -- the extended protocol ---------------------------------------------------------------------------------------------

    def _answer_batch(self) -> None:
        batch, self._batch, self._batched = self._batch, [], 0
        if not batch:
            return
        _, roles = self.statements.read(batch)
        answers: dict[int, PendingAnswer | PoolMatch] = {}
        for index in range(len(batch)):
            if self.skipping or self.acts.over or self._copying is not None:
                return
            if index not in roles:
                self.acts.say_now(build("3"))
                continue
            unit, role = roles[index]
            self._answer_role(unit, role, answers)

    def _answer_role(self, unit: Unit, role: Role, answers: dict[int, PendingAnswer | PoolMatch]) -> None:
        statement = unit.statement.text
        if id(unit) not in answers:
            asked = asked_of(self._server, self.database, statement, unit)
            if unit.part == 1 and self._takes_data(asked):
                self._answer_copy_role(unit, role, statement, asked)
                return
            answers[id(unit)] = self._find(asked, statement, unit)
        answer = answers[id(unit)]
        if isinstance(answer, PoolMatch):
            self._miss(answer)
            self.skipping = True
            return
        parts = answer.parts
        if parts.failed is not None and role >= parts.failed:
            self._say_part(answer, parts.failed, parts.answers.get(parts.failed, ()), statement)
            self.skipping = True
            return
        chunks = self._part(answer, unit, role)
        if chunks is None:
            self._fail(f"no description of this statement was recorded: {statement[:200]}", {})
            self.skipping = True
            return
        self._say_part(answer, role, chunks, statement)
        if role is Role.DESCRIBE_STATEMENT or role is Role.DESCRIBE_PORTAL:
            learn(unit, role, BackendFramer().feed(body_of(chunks)))

    def _say_part(self, answer: PendingAnswer, role: Role, chunks: tuple[Timed, ...], statement: str) -> None:
        """Say one part of an answer, with the time that parts took which were not asked for here; what follows from it."""
        parts, call = answer.parts, answer.call
        if parts.cut and parts.stops is not None and role >= parts.stops:
            self._fail("the recorded answer was not kept to its end", {})
            self.skipping = role is not Role.EXECUTE or not parts.simple
            return
        if answer.done == 0:
            self.cycle.append(answer)
        owed = sum(
            chunk.after_ns
            for one, said in parts.answers.items()
            if answer.done < one < role
            for chunk in said
        )
        answer.done = role
        if owed and chunks:
            chunks = (Timed(chunks[0].after_ns + owed, chunks[0].data), *chunks[1:])
        self.acts.send(chunks)
        if parts.stops is not None and role >= parts.stops and call is not None:
            self.acts.end(call.end, call.end_after_ns)
        if parts.failed is role:
            self.state = state_after(self.state, statement, parts.tags)
            self.state = "E" if self.state == "T" else self.state
        elif role is Role.EXECUTE:
            self.state = state_after(self.state, statement, parts.tags)

    def _part(self, answer: PendingAnswer, unit: Unit, role: Role) -> tuple[Timed, ...] | None:
        """What a role is answered; None where it is not known."""
        parts = answer.parts
        if parts.stops is not None and role >= parts.stops:
            return parts.answers.get(parts.stops, ())
        said = parts.answers.get(role)
        if said is not None:
            return without_rows_described(said) if parts.simple and role is Role.EXECUTE else said
        match role:
            case Role.PARSE:
                return (Timed(0, build("1")),)
            case Role.BIND:
                return (Timed(0, build("2")),)
            case Role.DESCRIBE_STATEMENT:
                return self._described_statement(parts, unit)
            case _:
                formats = unit.portal.bind.result_formats if unit.portal is not None else ()
                described = self._described(parts, unit.statement.text, formats)
                return None if described is None else (Timed(0, described),)

    def _described(self, parts: Parts, statement: str, formats: tuple[int, ...]) -> bytes | None:
        if parts.columns is None:
            known = self.server_info.described(self.database, statement)
            return None if known is None else known.described(formats)
        return parts.described(formats)

    def _described_statement(self, parts: Parts, unit: Unit) -> tuple[Timed, ...] | None:
        described = self._described(parts, unit.statement.text, ())
        if described is None:
            return None
        types = parts.types
        if types is None:
            known = self.server_info.typed(self.database, unit.statement.text)
            types = known.types if known is not None and known.types is not None else unit.statement.types
        parameters = len(types).to_bytes(2, "big") + b"".join(oid.to_bytes(4, "big") for oid in types)
        return (Timed(0, build("t", parameters) + described),)

    def _sync(self) -> None:
        if self._is_copying():  # while data is copied a server passes over it
            return
        self._answer_batch()
        if not self._is_copying() and not self.acts.over:
            self.skipping = False
            self._ready()

    def _ready(self) -> None:
        """ReadyForQuery, as recorded with the last call but with the live state; then what came unasked."""
        cycle, self.cycle = self.cycle, []
        last = cycle[-1] if cycle else None
        if len(cycle) == 1 and last is not None and last.parts.after and last.parts.before == self.began:
            self.state = last.parts.after
        self.began = self.state
        parts = last.parts if last is not None else Parts()
        chunks = parts.answers.get(Role.SYNC, ())
        if last is not None and parts.stops is Role.SYNC:
            assert last.call is not None
            self.acts.send(chunks)
            self.acts.end(last.call.end, last.call.end_after_ns)
            return
        if parts.ready_at is None or not chunks:
            self.acts.say_now(ready(self.state))
        else:
            self.acts.send(_with_state(chunks, parts.ready_at, self.state))
        if last is not None and last.own:
            self.acts.follow(parts.trail)

    # -- COPY ... FROM STDIN -----------------------------------------------------------------------------------------------

    def _is_copying(self) -> bool:
        return self._copying is not None

    def _takes_data(self, asked: Mapping[str, Any]) -> bool:
        return (
            self.state != "E"
            and self.server_info.copying(self.database, asked["statement"]) is not None
            and not self.pool.has(QUERY, asked)
        )

    def _begins_copy(self, statement: str, asked: dict[str, Any], unit: Unit | None) -> bool:
        """Let the client send its data, if this statement was one that takes some; it is looked up with them, at their end."""
        if not self._takes_data(asked):
            return False
        begin = self.server_info.copying(self.database, asked["statement"]) or ()
        self.acts.send(begin)
        size = sum(len(chunk.data) for chunk in begin)
        self._copying = _Copying(statement, asked, unit, size, bytearray())
        return True

    def _answer_copy_role(self, unit: Unit, role: Role, statement: str, asked: dict[str, Any]) -> None:
        match role:
            case Role.PARSE:
                self.acts.say_now(build("1"))
            case Role.BIND:
                self.acts.say_now(build("2"))
            case Role.EXECUTE:
                self._begins_copy(statement, asked, unit)
            case _:
                self.acts.say_now(build("n"))

    def _end_copy(self, failed: bool) -> None:
        copying, self._copying = self._copying, None
        if copying is None:
            return
        if failed:
            copying.asked["copy_failed"] = True
        copying.asked["copied"] = copied_of(bytes(copying.data))
        found = self._find(copying.asked, copying.statement, copying.unit)
        if copying.unit is None:
            self._answer_alone(found, copying.statement, copying.begun)
        elif isinstance(found, PoolMatch):
            self._miss(found)
            self.skipping = True
        else:
            chunks = _behind(found.parts.answers.get(Role.EXECUTE, ()), copying.begun)
            found.done = Role.DESCRIBE_PORTAL
            self.cycle.append(found)
            self._say_part(found, Role.EXECUTE, chunks, copying.statement)
            self.skipping = found.parts.failed is not None

    # -- looking up ----------------------------------------------------------------------------------------------------------

    def _find(self, asked: Mapping[str, Any], statement: str, unit: Unit | None) -> PendingAnswer | PoolMatch:
        """The answer; or the miss."""
        if self.state == "E" and not ends_transaction(statement):
            waiting = self.pool.peek(QUERY, asked, dialogue=self.own)
            parts = parts_of(waiting) if waiting is not None else None
            if parts is None or (parts.before != "E" and parts.failed is None):
                return self._aborted(unit)
        is_prepare = bool(asked.get("prepare"))
        known = self._known(statement, unit)
        found = self.pool.claim(
            QUERY,
            asked,
            connection=self._number,
            dialogue=self.own,
            again=is_prepare or is_read(statement),
            simulated=known is not None,
        )
        call = found.call
        if call is not None and (recorded := parts_of(call)) is not None:
            return PendingAnswer(recorded, call, own=call.dialogue == self.own and not found.again)
        return found if known is None else PendingAnswer(known)

    def _known(self, statement: str, unit: Unit | None) -> Parts | None:
        """An answer that needs no recorded call."""
        formats = unit.portal.bind.result_formats if unit is not None and unit.portal is not None else ()
        parts = known_parts(statement, formats, self.state, self.reported)
        if parts is not None or unit is None:
            return parts
        if unit.has(Role.EXECUTE):
            return None
        described = self.server_info.described(self.database, statement)
        if described is None and (unit.has(Role.DESCRIBE_STATEMENT) or unit.has(Role.DESCRIBE_PORTAL)):
            return None
        return Parts()

    def _aborted(self, unit: Unit | None) -> PendingAnswer:
        parts = aborted_parts()
        if unit is None:
            return PendingAnswer(
                Parts({Role.EXECUTE: parts.answers[Role.PARSE]}, failed=Role.EXECUTE, simple=True)
            )
        return PendingAnswer(parts)

    def _miss(self, found: PoolMatch) -> None:
        if self._on_miss == "reset":
            self.acts.end(CallEnd.RESET, 0)
            return
        asked = json.dumps(found.asked.get("statement"), ensure_ascii=False)[:500]
        more: dict[str, str] = {}
        if found.nearest is not None:
            nearest = json.dumps(found.nearest.asked, ensure_ascii=False)[:2000]
            more["D"] = f"The nearest recorded call is {nearest}. What differs: {', '.join(found.differs)}."
            more["H"] = f"To accept the difference: --ignore '{found.differs[0]}'" if found.differs else ""
        self._fail(f"no recorded answer to {asked}", more)

    def _fail(self, text: str, more: Mapping[str, str]) -> None:
        self.acts.say_now(error("58000", f"Relive: {text}", more=more))
        self.state = "E" if self.state != "I" else "I"


def _at_once(chunks: tuple[Timed, ...]) -> tuple[Timed, ...]:
    return (Timed(0, chunks[0].data), *chunks[1:]) if chunks else ()


def _behind(chunks: tuple[Timed, ...], size: int) -> tuple[Timed, ...]:
    """Chunks without their first bytes."""
    found: list[Timed] = []
    for chunk in chunks:
        if size < len(chunk.data):
            found.append(Timed(chunk.after_ns, chunk.data[size:]))
        size = max(0, size - len(chunk.data))
    return tuple(found)


def _with_state(chunks: tuple[Timed, ...], at: int, state: str) -> tuple[Timed, ...]:
    """Chunks with another byte at a place."""
    found: list[Timed] = []
    for chunk in chunks:
        data = chunk.data
        if 0 <= at < len(data):
            data = data[:at] + state.encode() + data[at + 1 :]
        found.append(Timed(chunk.after_ns, data))
        at -= len(data)
    return tuple(found)
