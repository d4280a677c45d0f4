"""Having a Java process of a throw-away branch tell its threads, locks, classes, heap, properties and flags."""

from __future__ import annotations

import time
from dataclasses import dataclass

from relive.errors import RestoreFailed
from relive.incidents.report.masking import Mask
from relive.inspection.branches import Questioned
from relive.inspection.java.answers import (
    read_classes,
    read_deadlocks,
    read_properties,
    read_threads,
    waits_of,
)
from relive.inspection.java.attach import JvmGone, JvmLate, ask_jvm
from relive.inspection.java.values import JavaState
from relive.inspection.masking import masked_names
from relive.kernel import procfs

__all__ = ["AskedJava"]


@dataclass(frozen=True, slots=True)
class AskedJava:
    """A process of Java in a branch, to be asked."""

    asked: Questioned
    pid: int
    mask: Mask

    def state(self, *, most: int, limit: float) -> JavaState:
        """All that is told of it, ``most`` classes; raises RestoreFailed where it does not answer, UsageError where it cannot."""
        ran_ms, process = self.asked.ran_ms(), procfs.innermost_pid(self.pid) or 0
        try:
            return self._state(process, most, time.monotonic() + limit, ran_ms)
        except JvmLate as error:
            raise RestoreFailed(
                f"the JVM of process {process} of the branch did not answer within {limit:g} s",
                cause="a thread of it does not come to a safepoint, or it collects garbage",
                remedy="give it more time (--limit)",
            ) from error
        except JvmGone as error:
            raise RestoreFailed(
                f"process {process} of the branch ended when it was asked",
                cause="it was committed right before its end, or what it does next ends it",
                remedy="ask an earlier commit (`relive log`)",
            ) from error

    def _state(self, process: int, most: int, until: float, ran_ms: int) -> JavaState:
        # First: what else is asked takes time and makes garbage.
        printed = ask_jvm(self.pid, "Thread.print -l", until)
        heap = ask_jvm(self.pid, "GC.heap_info", until)
        version = ask_jvm(self.pid, "VM.version", until)
        flags = ask_jvm(self.pid, "VM.flags", until)
        properties = read_properties(ask_jvm(self.pid, "VM.system_properties", until))
        count, size, classes = read_classes(ask_jvm(self.pid, "GC.class_histogram", until))
        told = JavaState(
            process=process,
            version=version.strip().splitlines()[0],
            threads=read_threads(printed),
            waits=waits_of(printed),
            deadlocks=read_deadlocks(printed),
            heap=[line.strip() for line in heap.splitlines() if line.strip()],
            count=count,
            size=size,
            classes=classes[:most],
            classes_left_out=max(0, len(classes) - most),
            properties=masked_names(self.mask, properties),
            flags=flags.strip(),
            ran_ms=ran_ms,
        )
        return self.mask.model(told)
