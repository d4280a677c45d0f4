"""What a Java process said of itself, as values."""

from __future__ import annotations

from relive.model.value import Value

__all__ = ["JavaClass", "JavaState", "JavaThread", "JavaWait"]


class JavaThread(Value):
    """A thread: of Java, or the JVM's own, which has neither state nor frames.

    Attributes:
        state: such as ``WAITING (parking)``.
        frames: innermost first, such as ``shop.Cart.add(Cart.java:88)``; ``locked`` and ``waiting to lock`` lines among them,
            behind the frame that they are of.
        daemon: the JVM does not wait for its end. cpu_ms: that it had used.
    """

    name: str
    native: int | None
    daemon: bool
    state: str
    cpu_ms: float | None
    frames: list[str]


class JavaWait(Value):
    """A thread waits for a monitor or a lock, ``lock`` with its class; ``holder``: the thread that has it, None: nobody known."""

    thread: str
    lock: str
    holder: str | None


class JavaClass(Value):
    """All living objects of a class."""

    name: str
    count: int
    size: int


class JavaState(Value):
    """A process of Java as it was.

    Attributes:
        version: of the JVM, its first line.
        deadlocks: as the JVM tells them, a text for each.
        heap: the JVM's own lines on the heap and its generations.
        classes: most bytes first, after a collection; classes_left_out: how many take less; count, size: of all objects.
        properties: system properties by name.
        flags: options of the JVM that are not as usual, and its arguments.
        ran_ms: how long the branch had run, at least, when it was asked.
    """

    process: int
    version: str
    threads: list[JavaThread]
    waits: list[JavaWait]
    deadlocks: list[str]
    heap: list[str]
    count: int
    size: int
    classes: list[JavaClass]
    classes_left_out: int
    properties: dict[str, str]
    flags: str
    ran_ms: int
