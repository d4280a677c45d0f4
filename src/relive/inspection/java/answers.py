"""Reading what a JVM prints: Thread.print, GC.class_histogram, VM.system_properties. Pure; what is not known is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from relive.inspection.java.values import JavaClass, JavaThread, JavaWait

__all__ = ["read_classes", "read_deadlocks", "read_properties", "read_threads", "waits_of"]

_THREAD = re.compile(r'"(?P<name>.*)" (?P<facts>(?:#\d+ |\[|daemon |prio=|os_prio=).*)')
_FACT = re.compile(r"(cpu|nid|tid)=(\S+)")
_STATE = "java.lang.Thread.State: "
_CLASS = re.compile(r"\s*\d+:\s+(\d+)\s+(\d+)\s+(.+)")
_TOTAL = re.compile(r"Total\s+(\d+)\s+(\d+)")
_LOCKED = re.compile(r"- locked <(\w+)>")
_OWNED = re.compile(r"- <(\w+)> \(a ([^)]*)\)")
_WAITS = re.compile(
    r"- (waiting to lock|parking to wait for|waiting to re-lock in wait\(\))\s+<(\w+)> \(a ([^)]*)\)"
)
_PARKS = "parking to wait for"  # also for what nobody holds, such as work
_OWNERS = "Locked ownable synchronizers:"
_DEADLOCK = re.compile(r"Found one Java-level deadlock:")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_threads(text: str) -> list[JavaThread]:
    """The threads of ``Thread.print -l``, in its order."""
    return [_thread(head, lines) for head, lines in _blocks(text)]


def waits_of(text: str) -> list[JavaWait]:
    """Who waits for which monitor or lock of ``Thread.print -l``, and who has it."""
    holders: dict[str, str] = {}
    waits: list[tuple[str, re.Match[str]]] = []
    for head, lines in _blocks(text):
        name = head["name"]
        holders |= {found[1]: name for line in lines if (found := _LOCKED.search(line))}
        owned = lines[lines.index(_OWNERS) + 1 :] if _OWNERS in lines else []
        holders |= {found[1]: name for line in owned if (found := _OWNED.match(line))}
        waits += [(name, found) for line in lines if (found := _WAITS.search(line))]
    return [
        JavaWait(thread=name, lock=f"{one[3]} <{one[2]}>", holder=holders.get(one[2]))
        for name, one in waits
        if holders.get(one[2]) != name and (one[1] != _PARKS or one[2] in holders)
    ]


def read_deadlocks(text: str) -> list[str]:
    """What ``Thread.print`` says of each deadlock, without the stacks, which it tells twice."""
    pieces = _DEADLOCK.split(text)[1:]
    return [piece.partition("Java stack information")[0].strip().strip("=").strip() for piece in pieces]


def read_classes(text: str) -> tuple[int, int, list[JavaClass]]:
    """(objects, bytes, classes, most bytes first) of ``GC.class_histogram``."""
    found = [match for line in text.splitlines() if (match := _CLASS.fullmatch(line))]
    classes = [
        JavaClass(name=one[3].partition(" (")[0].strip(), count=int(one[1]), size=int(one[2]))
        for one in found
    ]
    total = _TOTAL.search(text)
    count, size = (int(total[1]), int(total[2])) if total is not None else (0, 0)
    return count, size, sorted(classes, key=lambda one: -one.size)


def read_properties(text: str) -> dict[str, str]:
    """Names and values of ``VM.system_properties``, which has the form of java.util.Properties.store."""
    pairs = (_split(line) for line in text.splitlines() if line and not line.startswith("#"))
    return {_unescaped(name): _unescaped(value) for name, value in pairs}


def _blocks(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """(head of a thread, its lines without indent), up to what is told of deadlocks."""
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in _DEADLOCK.split(text)[0].splitlines():
        begins = _THREAD.match(line)
        if begins is not None or (line and not line[0].isspace()):
            if head is not None:
                yield head, lines
            head, lines = begins, []
        elif line.strip():
            lines.append(line.strip())
    if head is not None:
        yield head, lines


def _thread(head: re.Match[str], lines: Sequence[str]) -> JavaThread:
    facts = dict(_FACT.findall(head["facts"]))
    state = next((line.removeprefix(_STATE) for line in lines if line.startswith(_STATE)), "")
    own = list(lines[: lines.index(_OWNERS)]) if _OWNERS in lines else list(lines)
    return JavaThread(
        name=head["name"],
        native=int(facts["nid"], 0) if "nid" in facts else None,
        daemon=" daemon " in f" {head['facts']} ",
        state=state,
        cpu_ms=float(facts["cpu"].removesuffix("ms")) if facts.get("cpu", "").endswith("ms") else None,
        frames=[line.removeprefix("at ") for line in own if line.startswith(("at ", "- "))],
    )


def _split(line: str) -> tuple[str, str]:
    found = re.search(r"(?<!\\)(?:\\\\)*=", line)
    return (line[: found.end() - 1], line[found.end() :]) if found is not None else (line, "")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2]), text
    )
