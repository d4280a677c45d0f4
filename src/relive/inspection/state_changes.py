"""Which processes, threads, variables and descriptors differ between the states of two commits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import Field

from relive.inspection.state import CommitState, Descriptor, FileLock, ProcessState
from relive.model.value import Value

__all__ = [
    "DescriptorChange",
    "FieldChange",
    "ProcessChange",
    "StateChanges",
    "mapping_changes",
    "near_first",
    "state_changes",
]

_OF_DESCRIPTORS = ("kind", "name", "access", "offset", "size", "state", "peer", "unread", "unsent", "watches")
_OF_PROCESSES = ("name", "state", "uid", "executable", "directory", "parent", "command")

_NEAR = 4  # steps: a module, an attribute, an entry of a container
_STEP = re.compile(r"[.\[]")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


class FieldChange(Value):
    """A value that is another; None where there is none."""

    name: str
    before: str | None
    after: str | None


class DescriptorChange(Value):
    """A descriptor of a process that came, went, or is another; ``fields``: what of one that both have differs."""

    fd: int
    before: str | None
    after: str | None
    fields: list[FieldChange] = Field(default=[])


class ProcessChange(Value):
    """A process that both commits have, with what differs.

    Attributes:
        threads_added, threads_gone: their numbers.
        calls: of threads that both have, where they stood, if in another call.
    """

    pid: int
    name: str
    fields: list[FieldChange]
    environment: list[FieldChange]
    descriptors: list[DescriptorChange]
    threads_added: list[int]
    threads_gone: list[int]
    calls: list[FieldChange]

    @property
    def is_empty(self) -> bool:
        """Nothing of it differs."""
        lists = (self.fields, self.environment, self.descriptors, self.calls)
        return not any(lists) and not self.threads_added and not self.threads_gone


class StateChanges(Value):
    """``added``, ``gone``: processes that only the later or only the earlier commit has."""

    added: list[str]
    gone: list[str]
    processes: list[ProcessChange]
    locks_added: list[FileLock]
    locks_gone: list[FileLock]


def state_changes(before: CommitState, after: CommitState) -> StateChanges:
    """What differs; processes are the same where they have the same number."""
    old = {one.pid: one for one in before.processes}
    new = {one.pid: one for one in after.processes}
    both = [_process_change(old[pid], new[pid]) for pid in old if pid in new]
    return StateChanges(
        added=[_process_words(new[pid]) for pid in new if pid not in old],
        gone=[_process_words(old[pid]) for pid in old if pid not in new],
        processes=[one for one in both if not one.is_empty],
        locks_added=[one for one in after.locks if one not in before.locks],
        locks_gone=[one for one in before.locks if one not in after.locks],
    )


def _process_words(process: ProcessState) -> str:
    return f"{process.pid} {' '.join(process.command) or process.name}"


def _process_change(old: ProcessState, new: ProcessState) -> ProcessChange:
    before = {one.tid: one.call for one in old.threads}
    after = {one.tid: one.call for one in new.threads}
    return ProcessChange(
        pid=new.pid,
        name=new.name,
        fields=_fields(old, new, _OF_PROCESSES),
        environment=mapping_changes(old.environment, new.environment),
        descriptors=_descriptor_changes(old, new),
        threads_added=[tid for tid in after if tid not in before],
        threads_gone=[tid for tid in before if tid not in after],
        calls=mapping_changes(
            {str(tid): before[tid] or "running" for tid in before if tid in after},
            {str(tid): after[tid] or "running" for tid in after if tid in before},
        ),
    )


def mapping_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[FieldChange]:
    """What differs between values by name, in the order of the names."""
    return [
        FieldChange(name=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def near_first(changes: Iterable[FieldChange]) -> list[FieldChange]:
    """Values of a program in their order, but those with more than four steps in their names last.

    ``app.prices['tea']`` before ``app.Session.kw['bind']._compiled_cache[...]``: what lies deep is mostly a library's own affair,
    and there is much of it.
    """
    return sorted(changes, key=lambda one: len(_STEP.findall(_QUOTED.sub("", one.name))) > _NEAR)


def _fields(old: Value, new: Value, names: tuple[str, ...]) -> list[FieldChange]:
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in names]
    return [
        FieldChange(name=name, before=_words(one), after=_words(other))
        for name, one, other in pairs
        if one != other
    ]


def _words(value: object) -> str | None:
    if value is None:
        return None
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _descriptor_changes(old: ProcessState, new: ProcessState) -> list[DescriptorChange]:
    before = {one.fd: one for one in old.descriptors}
    after = {one.fd: one for one in new.descriptors}
    found = []
    for fd in sorted(before.keys() | after.keys()):
        one, other = before.get(fd), after.get(fd)
        fields = _fields(one, other, _OF_DESCRIPTORS) if one is not None and other is not None else []
        if one is None or other is None or fields:
            found.append(
                DescriptorChange(fd=fd, before=_described(one), after=_described(other), fields=fields)
            )
    return found


def _described(descriptor: Descriptor | None) -> str | None:
    if descriptor is None:
        return None
    peer = f" -> {descriptor.peer}" if descriptor.peer else ""
    return f"{descriptor.kind} {descriptor.name}{peer}".strip()
