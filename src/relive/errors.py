"""The error tree. This module imports nothing of Relive, so every room may raise from it.

ReliveError
├── UsageError            a request that cannot be meant: exit status 2
│   ├── ConfigInvalid, FixtureInvalid, KeptInvalid, PatchUnfit, ChangeUnfit, PlaceUnfit, UnitUnfit
├── NotFound              a name that stands for nothing: 3
│   ├── TargetUnknown, ProcessGone, RefUnknown, RefAmbiguous, IncidentUnknown, BranchUnknown
│   ├── TokenUnknown, KeptExportUnknown, TaskUnknown
├── HostIncapable         this machine cannot do it (see ``relive doctor``): 4
│   ├── PermissionMissing, OutputLost, ToolMissing, DiskFull, HostUnfit, ExportsFull
├── CommitFailed          the target was not committed and runs on: 5
│   ├── TargetUndumpable, CommitTimedOut
├── RestoreFailed         the branch did not come to life: 6
│   ├── RestoreTimedOut, RestoreUnsupported, ImageUnavailable, SealBroken, DebuggerSilent, MemoryLost, DiskFilled
├── StoreError            the store cannot give or take something: 7
│   ├── StoreVersionUnknown, ObjectMissing, ObjectCorrupt, StoreBusy, KeyMissing, KeyWrong, SignatureInvalid
│   ├── AuditBroken
├── RecordingError        the recording cannot answer: 8
│   ├── RecordingCorrupt, ReplayDiverged, RequestUnknown, RequestTruncated, PackageMissing, TlsRefused
├── CapsuleError          a capsule did not start or its agent does not answer: 9
│   ├── CapsuleExists, CapsuleStartFailed, CapsuleVersionUnknown, NotReady, AgentUnreachable
├── ExchangeError         a commit could not be sent or fetched: 11
│   ├── RemoteUnknown, RemoteUnreachable, RemoteRefused, ArchiveInvalid
├── RequestRefused        the server does not do what a request asks: 13
│   ├── CredentialsMissing, ScopeMissing, OriginRefused, UrlRefused
│   ├── RequestInvalid, MethodNotAllowed, RangeUnsatisfiable
│   ├── RequestTooLarge, HeadersTooLarge, RequestTooSlow, TooManyRequests, ServerBusy
├── TaskError             a task of the server was not taken on, or not done: 12
│   ├── KeyReused, TasksFull, TaskLost
└── Cancelled             given up because whoever asked said so: 130

Exit statuses 0 and 1 are the verdicts of ``relive replay`` (reproduced, not reproduced); 10 is "diverged" or "same answer,
cause not seen". ``relive fixture`` ends with 1 when a query is not satisfied.
``docs/errors.md`` is generated from this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "AgentUnreachable",
    "ArchiveInvalid",
    "AuditBroken",
    "BranchUnknown",
    "Cancelled",
    "CapsuleError",
    "CapsuleExists",
    "CapsuleStartFailed",
    "CapsuleVersionUnknown",
    "ChangeUnfit",
    "CommitFailed",
    "CommitTimedOut",
    "ConfigInvalid",
    "CredentialsMissing",
    "DebuggerSilent",
    "DiskFilled",
    "DiskFull",
    "ExchangeError",
    "ExportsFull",
    "FixtureInvalid",
    "HeadersTooLarge",
    "HostIncapable",
    "HostUnfit",
    "ImageUnavailable",
    "IncidentUnknown",
    "KeptExportUnknown",
    "KeptInvalid",
    "KeyMissing",
    "KeyReused",
    "KeyWrong",
    "MemoryLost",
    "MethodNotAllowed",
    "NotFound",
    "NotReady",
    "ObjectCorrupt",
    "ObjectMissing",
    "OriginRefused",
    "OutputLost",
    "PackageMissing",
    "PatchUnfit",
    "PermissionMissing",
    "PlaceUnfit",
    "ProcessGone",
    "RangeUnsatisfiable",
    "RecordingCorrupt",
    "RecordingError",
    "RefAmbiguous",
    "RefUnknown",
    "ReliveError",
    "RemoteRefused",
    "RemoteUnknown",
    "RemoteUnreachable",
    "ReplayDiverged",
    "RequestInvalid",
    "RequestRefused",
    "RequestTooLarge",
    "RequestTooSlow",
    "RequestTruncated",
    "RequestUnknown",
    "RestoreFailed",
    "RestoreTimedOut",
    "RestoreUnsupported",
    "ScopeMissing",
    "SealBroken",
    "ServerBusy",
    "SignatureInvalid",
    "StoreBusy",
    "StoreError",
    "StoreVersionUnknown",
    "TargetUndumpable",
    "TargetUnknown",
    "TaskError",
    "TaskLost",
    "TaskUnknown",
    "TasksFull",
    "TlsRefused",
    "TokenUnknown",
    "TooManyRequests",
    "ToolMissing",
    "UnitUnfit",
    "UrlRefused",
    "UsageError",
    "reason_of",
]

_FROM_ANOTHER_STORE = "`relive repair --from STORE` fetches it from another store that has it; or use another commit (`relive log`)"
_VALUE_ERROR = re.compile(r"(^|: )Value error, ")


class ReliveError(Exception):
    """What happened, to what, why, and what to do next.

    Attributes:
        code: stable kebab-case name, used in ``--json`` output and in the documentation.
        exit_status: status with which the ``relive`` command ends.
        message: one sentence without a full stop, naming the thing it happened to.
        cause: why, as far as it is known, often the words of the layer below; None if unknown.
        remedy: what the reader can do about it; None where nothing is known to help.
        usual_remedy: that of a class where an error of it gives none.
    """

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 70
    usual_remedy: ClassVar[str | None] = None

    def __init__(self, message: str, *, cause: str | None = None, remedy: str | None = None) -> None:
        # All parts stay in args, so that the error survives pickling between processes.
        super().__init__(message, cause, remedy)
        self.message = message
        self.cause = cause
        self.remedy = self.usual_remedy if remedy is None else remedy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.cause, self.remedy)

    def __str__(self) -> str:
        return self.message if self.cause is None else f"{self.message}: {self.cause}"

    def as_json(self) -> dict[str, str | None]:
        """The one error shape of CLI ``--json``, REST, MCP and between processes: {code, message, cause, remedy}."""
        return {"code": self.code, "message": self.message, "cause": self.cause, "remedy": self.remedy}

    @classmethod
    def from_json(cls, value: Mapping[str, str | None]) -> ReliveError:
        """The error that ``as_json`` made the value of, of the class that has the code; a ReliveError for an unknown code."""
        kinds = [ReliveError]
        for kind in kinds:  # grows as it is walked
            kinds += kind.__subclasses__()
        kind = next((one for one in kinds if one.code == value.get("code")), ReliveError)
        return kind(
            value.get("message") or "something failed", cause=value.get("cause"), remedy=value.get("remedy")
        )


def reason_of(message: str) -> str:
    """What pydantic, or typer by it, says of a value, in the words of the check that refused it: without their "Value error, "."""
    return _VALUE_ERROR.sub(r"\1", message, count=1)


def _rebuild(kind: type[ReliveError], message: str, cause: str | None, remedy: str | None) -> ReliveError:
    return kind(message, cause=cause, remedy=remedy)


class UsageError(ReliveError):
    """The request cannot be meant as it stands."""

    code = "usage"
    exit_status = 2


class ConfigInvalid(UsageError):
    """``relive.toml`` or a ``RELIVE_*`` variable holds a value that is not allowed."""

    code = "config-invalid"


class FixtureInvalid(UsageError):
    """A rule file of a fixture that cannot be read, or whose rows no database takes."""

    code = "fixture-invalid"


class KeptInvalid(UsageError):
    """A file of a kept state is none that ``relive kept`` could run."""

    code = "kept-invalid"


class PatchUnfit(UsageError):
    """A patch does not apply to the service's files, or cannot be brought into a living process."""

    code = "patch-unfit"


class ChangeUnfit(UsageError):
    """A change of a recording that cannot be read, or cannot be made in what it is a change of."""

    code = "change-unfit"


class PlaceUnfit(UsageError):
    """A line or an expression that the service's process has not, or a process that cannot be followed line by line."""

    code = "place-unfit"


class UnitUnfit(UsageError):
    """A unit of systemd cannot be run under Relive as it is, or its drop-in was edited."""

    code = "unit-unfit"


class NotFound(ReliveError):
    """A name that stands for nothing."""

    code = "not-found"
    exit_status = 3


class TargetUnknown(NotFound):
    """No capsule has that name, or the text is not a target at all."""

    code = "target-unknown"


class ProcessGone(NotFound):
    """There is no process of that number (any more)."""

    code = "process-gone"


class RefUnknown(NotFound):
    """No commit, tag or time expression of that name."""

    code = "ref-unknown"


class RefAmbiguous(NotFound):
    """An id prefix that fits more than one commit."""

    code = "ref-ambiguous"


class IncidentUnknown(NotFound):
    """No incident of that number."""

    code = "incident-unknown"


class BranchUnknown(NotFound):
    """No branch of that id."""

    code = "branch-unknown"


class TokenUnknown(NotFound):
    """No token of that id or name."""

    code = "token-unknown"


class KeptExportUnknown(NotFound):
    """The server keeps no export of that id (any more)."""

    code = "kept-export-unknown"


class TaskUnknown(NotFound):
    """The server has no task of that id (any more)."""

    code = "task-unknown"


class HostIncapable(ReliveError):
    """This machine, as it is, cannot do it; ``relive doctor`` shows what it can."""

    code = "host-incapable"
    exit_status = 4


class PermissionMissing(HostIncapable):
    """The caller lacks a right, nearly always: it is not root."""

    code = "permission-missing"


class OutputLost(HostIncapable):
    """Standard output is full, and what was asked for is done; or it is closed, and nothing was done."""

    code = "output-lost"


class ToolMissing(HostIncapable):
    """A program Relive drives is absent or does not work."""

    code = "tool-missing"


class DiskFull(HostIncapable):
    """No space left where Relive keeps its state; nothing that was there before is touched."""

    code = "disk-full"


class HostUnfit(HostIncapable):
    """A commit of another machine cannot run on this one."""

    code = "host-unfit"


class ExportsFull(HostIncapable):
    """The server keeps as many bytes of exports as it may; none was added."""

    code = "exports-full"


class CommitFailed(ReliveError):
    """The target was not committed; it runs on, and the store is as it was."""

    code = "commit-failed"
    exit_status = 5


class TargetUndumpable(CommitFailed):
    """The target holds something that CRIU cannot save; the cause keeps CRIU's own sentence."""

    code = "target-undumpable"


class CommitTimedOut(CommitFailed):
    """The commit took longer than its limit; the watchdog resumed the target."""

    code = "commit-timed-out"


class RestoreFailed(ReliveError):
    """The branch did not come to life; what there was of it is gone again."""

    code = "restore-failed"
    exit_status = 6


class RestoreTimedOut(RestoreFailed):
    """The restore took longer than its limit."""

    code = "restore-timed-out"


class RestoreUnsupported(RestoreFailed):
    """The commit is of a container that shared what a sandbox does not give it; it runs where its engine restores it."""

    code = "restore-unsupported"


class ImageUnavailable(RestoreFailed):
    """The image of a container's commit is not here, or another one has its name now."""

    code = "image-unavailable"


class SealBroken(RestoreFailed):
    """The sandbox could not prove that it is sealed, so nothing was started in it."""

    code = "seal-broken"


class DebuggerSilent(RestoreFailed):
    """The branch came to life, but no debugger opened in it."""

    code = "debugger-silent"


class MemoryLost(RestoreFailed):
    """A branch restored with ``--lazy`` ran before its memory was all there, and the rest could not come: it was stopped."""

    code = "memory-lost"


class DiskFilled(RestoreFailed):
    """A branch was ended because the disk that it writes to was filling up, by it or by others."""

    code = "disk-filled"


class StoreError(ReliveError):
    """The store cannot give or take something."""

    code = "store-error"
    exit_status = 7


class StoreVersionUnknown(StoreError):
    """The store was written by a newer Relive."""

    code = "store-version-unknown"


class ObjectMissing(StoreError):
    """An object that a commit needs is not in the store."""

    code = "object-missing"
    usual_remedy = _FROM_ANOTHER_STORE


class ObjectCorrupt(StoreError):
    """The bytes of an object do not match its name; nothing of it is used."""

    code = "object-corrupt"
    usual_remedy = _FROM_ANOTHER_STORE


class StoreBusy(StoreError):
    """Another process holds the lock that this step needs."""

    code = "store-busy"


class KeyMissing(StoreError):
    """A store or an archive is sealed and its key is not there; nothing is read, and nothing is written plain."""

    code = "key-missing"


class KeyWrong(StoreError):
    """The key that is there is not the one a store or an archive was sealed with, or the file holds no key."""

    code = "key-wrong"


class SignatureInvalid(StoreError):
    """A commit is not signed by this host or one it trusts, or was changed after it was signed."""

    code = "signature-invalid"


class AuditBroken(StoreError):
    """The audit log was changed: an entry is missing, altered or out of its place."""

    code = "audit-broken"


class RecordingError(ReliveError):
    """The recording cannot answer."""

    code = "recording-error"
    exit_status = 8


class RecordingCorrupt(RecordingError):
    """A recording holds bytes that are no events; what lies before them is still used."""

    code = "recording-corrupt"


class ReplayDiverged(RecordingError):
    """A replay went another way than the one before it, so that a place in it is not the place that was meant."""

    code = "replay-diverged"


class RequestUnknown(RecordingError):
    """No request of that number was recorded."""

    code = "request-unknown"


class RequestTruncated(RecordingError):
    """The request's body was larger than the recorder keeps, so it cannot be sent again."""

    code = "request-truncated"


class PackageMissing(RecordingError):
    """The incident has no error package, and no failing answer whose recording is here: nothing to begin a fresh process with."""

    code = "package-missing"


class TlsRefused(RecordingError):
    """The service ends TLS itself, and speaks with no client that has what Relive has, such as no certificate of its own."""

    code = "tls-refused"


class CapsuleError(ReliveError):
    """A capsule did not start, or its agent does not answer."""

    code = "capsule-error"
    exit_status = 9


class CapsuleExists(CapsuleError):
    """A capsule of that name is running already."""

    code = "capsule-exists"


class CapsuleStartFailed(CapsuleError):
    """The capsule's namespaces or files could not be set up, or its command could not be started."""

    code = "capsule-start-failed"


class NotReady(CapsuleError):
    """A service was started and runs, but was not ready in time."""

    code = "not-ready"


class CapsuleVersionUnknown(CapsuleError):
    """Process 1 of the capsule is of another Relive, and writes what this one cannot read."""

    code = "capsule-version-unknown"


class AgentUnreachable(CapsuleError):
    """The capsule's agent does not answer on its control socket."""

    code = "agent-unreachable"


class ExchangeError(ReliveError):
    """A commit could not be sent to a remote or fetched from one; doing it again goes on where it ended."""

    code = "exchange-error"
    exit_status = 11


class RemoteUnknown(ExchangeError):
    """No bucket or directory is at the remote's address, or the address is none."""

    code = "remote-unknown"


class RemoteUnreachable(ExchangeError):
    """The remote does not answer, or answers no more; what has arrived is kept for the next time."""

    code = "remote-unreachable"


class RemoteRefused(ExchangeError):
    """The remote does not accept the credentials, or does not let them do this."""

    code = "remote-refused"


class ArchiveInvalid(ExchangeError):
    """An archive that was cut off or changed, or a file that is none; nothing of it is taken in."""

    code = "archive-invalid"


class RequestRefused(ReliveError):
    """The server does not do what a request asks, and did nothing."""

    code = "request-refused"
    exit_status = 13


class CredentialsMissing(RequestRefused):
    """No token, or one that is not valid; unknown, wrong, expired and revoked ones are not told apart."""

    code = "credentials-missing"


class ScopeMissing(RequestRefused):
    """The token is valid, but its scopes do not reach so far."""

    code = "scope-missing"


class OriginRefused(RequestRefused):
    """A request without a token that may come from a web page: its Host or Origin is not this server."""

    code = "origin-refused"


class UrlRefused(RequestRefused):
    """A signed address of a download that is wrong, has expired or was revoked."""

    code = "url-refused"


class RequestInvalid(RequestRefused):
    """A field of the request is missing or cannot be what it is."""

    code = "request-invalid"


class MethodNotAllowed(RequestRefused):
    """The path is there, but not for this method."""

    code = "method-not-allowed"


class RangeUnsatisfiable(RequestRefused):
    """The range that is asked for begins behind the end of the file."""

    code = "range-unsatisfiable"


class RequestTooLarge(RequestRefused):
    """The body of the request is larger than the server takes."""

    code = "request-too-large"


class HeadersTooLarge(RequestRefused):
    """The address and headers of the request are longer than the server takes."""

    code = "headers-too-large"


class RequestTooSlow(RequestRefused):
    """The body of the request did not arrive in time."""

    code = "request-too-slow"


class TooManyRequests(RequestRefused):
    """The caller asks more often than it may."""

    code = "too-many-requests"


class ServerBusy(RequestRefused):
    """As many requests are being answered already as may be at one time."""

    code = "server-busy"


class Cancelled(ReliveError):
    """Whoever asked for it does not want it any more; what was begun has been taken back."""

    code = "cancelled"
    exit_status = 130


class TaskError(ReliveError):
    """A task of the server was not taken on, or not done."""

    code = "task-error"
    exit_status = 12


class KeyReused(TaskError):
    """An idempotency key that was given before, with another request."""

    code = "key-reused"


class TasksFull(TaskError):
    """As many tasks wait already as may."""

    code = "tasks-full"


class TaskLost(TaskError):
    """The server died in the task each time it was tried, so it is not tried again."""

    code = "task-lost"
