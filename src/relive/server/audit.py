"""The audit log: who asked for what, from where, and how it ended. ``server/audit/NUMBER.jsonl``, one JSON object a line.

NUMBER is the first entry's, in 12 digits; the last file is written to, and when it is full the next one is begun. Each entry holds
the hash of the one before, so that whoever takes out, changes or moves one must make all later hashes anew, for which they would
need ``audit.key``: the hash is HMAC-SHA256 under that key over the entry's JSON without its hash. What is not noticed: entries cut
off at the end, by who can write the files; and anything, by who can also read the key (on this host: root). Against both,
note now and then what `relive audit verify` prints, elsewhere: the number and the hash of the last entry.

Files beyond the newest ``KEPT`` are deleted, so the log has a size, and its first entry is the oldest one that is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relive.errors import AuditBroken
from relive.incidents.report.masking import MASK, Mask
from relive.kernel.atomic_write import sync_directory
from relive.kernel.disk_errors import disk_errors
from relive.server.key_files import private_directory, read_key

__all__ = ["KEPT", "Audit", "AuditEntry", "AuditPage", "AuditSound", "note_for_audit"]

KEPT: Final = 64  # files
_FULL: Final = 4 << 20  # [bytes] of a file
_NOTED: Final = "relive.audit"  # in the ASGI scope: a dict of what routes say of the request
_FIRST: Final = "0" * 64  # the hash before the first entry
_BLOCK: Final = 64 << 10  # [bytes] read at once from the end
_TOKEN: Final = re.compile(r"rlv_[0-9a-f]{16}_[0-9a-f]+|(?<=signature=)[0-9A-Za-z]+", re.ASCII)
_LONGEST: Final = 500  # [characters] of a field


class AuditEntry(BaseModel):
    """One line.

    Attributes:
        number: from 1, without gaps.
        time_ns: Unix nanoseconds.
        who: a token's name and id, ``anonymous``, a signed address's id, or ``unknown``.
        what: method and path, without the query.
        target: the commit, incident or other thing it is about; None where the path says it.
        outcome: ``asked`` before something is done, then ``done``, ``refused``, ``failed``.
        status: of HTTP; None for ``asked``.
        task: the task that does it.
        unwritten: refusals before this one of which there is no entry, since there were too many.
        previous, hash: 64 hexadecimal digits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(gt=0)
    time_ns: int
    who: str
    address: str
    what: str
    target: str | None = None
    outcome: str
    status: int | None = None
    task: str | None = None
    unwritten: int = 0
    previous: str
    hash: str


class AuditPage(BaseModel):
    """Entries, the newest first, a page of them; ``next``: cursor for the page that follows, None if there is none."""

    entries: list[AuditEntry]
    next: int | None


class AuditSound(BaseModel):
    """What a sound log holds: how many entries, the numbers of the first and last, the hash of the last; 0 if empty."""

    entries: int
    first: int
    last: int
    hash: str


class _End(NamedTuple):
    """Where the next entry goes, and what it goes on from."""

    path: Path
    size: int
    number: int
    hash: str


def note_for_audit(
    scope: MutableMapping[str, Any],
    *,
    who: str | None = None,
    target: str | None = None,
    task: str | None = None,
) -> None:
    """Say more of a request, from its route; a reading request is in the log only if something was said of it."""
    noted = scope.get(_NOTED)
    if noted is not None:  # else there is no audit trail around this application
        given = {"who": who, "target": target, "task": task}
        noted.update({name: value for name, value in given.items() if value is not None}, is_noted=True)


class Audit:
    """The log of one ``$RELIVE_HOME``; several processes and threads may append to it."""

    def __init__(self, server: Path, *, clock: Callable[[], int] = time.time_ns, full: int = _FULL) -> None:
        """
        Args:
            server: ``settings.server``.
            full: bytes after which the next file is begun.

        Raises:
            KeyWrong, DiskFull, PermissionMissing, StoreError: it cannot be opened.
        """
        self._directory = private_directory(private_directory(server) / "audit")
        self._key = read_key(server / "audit.key")
        self._lock_path = server / "audit.lock"
        self._clock, self._full = clock, full
        self._lock = threading.Lock()
        self._end: _End | None = None

    def record(
        self,
        *,
        who: str,
        address: str,
        what: str,
        outcome: str,
        target: str | None = None,
        status: int | None = None,
        task: str | None = None,
        unwritten: int = 0,
        is_durable: bool = False,
    ) -> AuditEntry:
        """Append an entry, with secrets masked and long fields cut; ``is_durable``: on the disk on return.

        Raises:
            DiskFull, PermissionMissing, StoreError: it could not be written; nothing of it stays.
            AuditBroken: the last entry cannot be read, so none can follow it.
        """
        mask = Mask()
        facts: dict[str, Any] = {
            "time_ns": self._clock(),
            "who": _clean(mask, who),
            "address": _clean(mask, address),
            "what": _clean(mask, what),
            "target": None if target is None else _clean(mask, target),
            "outcome": outcome,
            "status": status,
            "task": task,
            "unwritten": unwritten,
        }
        with self._alone(), disk_errors(f"writing to the audit log {self._directory}", self._directory):
            end = self._find_end()
            facts |= {"number": end.number + 1, "previous": end.hash}
            line, digest = self._line(facts)
            if end.size and end.size + len(line) > self._full:
                end = end._replace(path=self._path(end.number + 1), size=0)
            self._end = None  # should the writing break off
            self._append(end, line, is_durable=is_durable)
            self._end = _End(end.path, end.size + len(line), end.number + 1, digest)
        return AuditEntry(**facts, hash=digest)

    def page(self, *, after: int | None = None, limit: int = 100) -> AuditPage:
        """At most ``limit`` entries, the newest first; entries that arrive meanwhile change nothing.

        Args:
            after: number of the entry behind which the page begins, so it has smaller ones; None: it begins with the newest.

        Raises:
            AuditBroken: a line is no entry.
            StoreError: a file cannot be read.
        """
        found: list[AuditEntry] = []
        for path in reversed(self._files()):
            if after is not None and int(path.stem) >= after:
                continue
            with disk_errors(f"reading {path}"):
                for line in _lines_from_the_end(path):
                    entry = _parsed(line, path)
                    if after is None or entry.number < after:
                        found.append(entry)
                    if len(found) > limit:
                        return AuditPage(entries=found[:limit], next=found[limit - 1].number)
        return AuditPage(entries=found, next=None)

    def verify(self) -> AuditSound:
        """Check every entry that is kept.

        Raises:
            AuditBroken: an entry was changed, or one is missing, or what stands in a line is none; says where.
            StoreError: a file cannot be read.
        """
        first = last = count = 0
        digest: str | None = None
        for path in self._files():
            with disk_errors(f"reading {path}"), path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n") and path == self._files()[-1]:
                        break  # it is being written just now, or its writer died; the next writer takes it out
                    entry = _parsed(line, path)
                    self._check(entry, last, digest, path)
                    first, last, digest = first or entry.number, entry.number, entry.hash
                    count += 1
        return AuditSound(entries=count, first=first, last=last, hash=digest or _FIRST)

    def _check(self, entry: AuditEntry, last: int, digest: str | None, path: Path) -> None:
        facts = entry.model_dump(exclude={"hash"})
        if not hmac.compare_digest(self._line(facts)[1], entry.hash):
            raise _broken(f"entry {entry.number} was changed", path)
        if digest is None:
            if entry.number != int(path.stem) or (entry.number == 1 and entry.previous != _FIRST):
                raise _broken(f"what stood before entry {entry.number} is missing", path)
        elif entry.number != last + 1 or entry.previous != digest:
            raise _broken(f"entry {entry.number} does not follow entry {last}", path)

    def _line(self, facts: dict[str, Any]) -> tuple[bytes, str]:
        """(the line, the hash): keys in order, no spaces, ASCII."""
        plain = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
        digest = hmac.digest(self._key, plain, "sha256").hex()
        whole = json.dumps({**facts, "hash": digest}, sort_keys=True, separators=(",", ":"))
        return whole.encode() + b"\n", digest

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock, disk_errors(f"locking {self._lock_path}", self._directory):
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:012}.jsonl"

    def _files(self) -> list[Path]:
        """The oldest first."""
        return sorted(path for path in self._directory.glob("*.jsonl") if path.stem.isdecimal())

    def _find_end(self) -> _End:
        """The end as it was left by the last ``record``, if nobody has written since; else by the file."""
        known = self._end
        if known is not None and not self._path(known.number + 1).exists():
            with contextlib.suppress(FileNotFoundError):
                if known.path.stat().st_size == known.size:
                    return known
        files = self._files()
        if not files:
            return _End(self._path(1), 0, 0, _FIRST)
        size = _without_torn_line(files[-1])
        if not size:  # its writer died before the first entry was whole
            files[-1].unlink()
            return self._find_end()
        entry = _parsed(next(_lines_from_the_end(files[-1])), files[-1])
        return _End(files[-1], size, entry.number, entry.hash)

    def _append(self, end: _End, line: bytes, *, is_durable: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(end.path, flags, 0o600)
        try:
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                if is_durable:
                    os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end.size)
                raise
        finally:
            os.close(descriptor)
        if not end.size:
            sync_directory(self._directory)
            for path in self._files()[:-KEPT]:
                path.unlink()


def _clean(mask: Mask, text: str) -> str:
    # Cut first: a path may be thousands of characters long, and to look for secrets takes the square of that.
    return mask.sentence(_TOKEN.sub(MASK, text[:_LONGEST]))[:_LONGEST]


def _parsed(line: bytes, path: Path) -> AuditEntry:
    try:
        return AuditEntry.model_validate_json(line)
    except ValidationError as error:
        raise _broken("a line is no entry", path) from error


def _broken(what: str, path: Path) -> AuditBroken:
    return AuditBroken(
        f"the audit log is not as it was written: {what}",
        cause=f"{path} was changed by something else than Relive, or damaged",
        remedy="keep a copy of the file and find out who could write it; the entries before it are sound. To begin a new log, "
        "move the directory away",
    )


def _without_torn_line(path: Path) -> int:
    """Take out the line at the end that its writer did not finish, which nobody was told of; gives the size [bytes]."""
    size = path.stat().st_size
    with path.open("rb+") as file:
        position = size
        while position:
            begin = max(0, position - _BLOCK)
            file.seek(begin)
            found = file.read(position - begin).rfind(b"\n")
            if found >= 0:
                position = begin + found + 1
                break
            position = begin
        if position != size:
            file.truncate(position)
    return position


def _lines_from_the_end(path: Path) -> Iterator[bytes]:
    """Whole lines, the last first; what follows the last newline is not whole yet."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest, is_last = b"", True
        while position:
            begin = max(0, position - _BLOCK)
            file.seek(begin)
            lines = (file.read(position - begin) + rest).split(b"\n")
            position, rest = begin, lines[0]
            for line in reversed(lines[1:]):
                if not is_last:
                    yield line
                is_last = False
        if rest and not is_last:
            yield rest
