"""What a JVM prints, read: a text of JDK 17, and texts that are none."""

from __future__ import annotations

from relive.inspection.java.answers import (
    read_classes,
    read_deadlocks,
    read_properties,
    read_threads,
    waits_of,
)

THREADS = """2026-11-23 19:20:01
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6 mixed mode, sharing):

Threads class SMR info:
_java_thread_list=0x00007f, length=3, elements={
0x00007f4
}

"cashier" #14 prio=5 os_prio=0 cpu=0.31ms elapsed=12.51s tid=0x00007f nid=0x1d waiting for monitor entry  [0x00007f]
   java.lang.Thread.State: BLOCKED (on object monitor)
\tat Shop.pay(Shop.java:11)
\t- waiting to lock <0x0b> (a java.lang.Object)
\t- locked <0x0a> (a java.lang.Object)

   Locked ownable synchronizers:
\t- <0x0c> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)

"a \\"queue\\" #2" #15 daemon prio=5 os_prio=0 cpu=1200.50ms elapsed=1s tid=0x7 nid=0x1f waiting on condition  [0x0]
   java.lang.Thread.State: WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(Native Method)
\t- parking to wait for  <0x0c> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)

   Locked ownable synchronizers:
\t- None

"worker" #16 prio=5 os_prio=0 cpu=1.00ms elapsed=1s tid=0x7 nid=0x20 waiting on condition  [0x0]
   java.lang.Thread.State: WAITING (parking)
\t- parking to wait for  <0x0d> (a java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject)

"VM Thread" os_prio=0 cpu=2.10ms elapsed=12.60s tid=0x00007f nid=0x12 runnable

JNI global refs: 15, weak refs: 0


Found one Java-level deadlock:
=============================
"cashier":
  waiting to lock monitor 0x7 (object 0x0b, a java.lang.Object),
  which is held by "stock"

Java stack information for the threads listed above:
===================================================
"cashier":
\tat Shop.pay(Shop.java:11)
"""

CLASSES = """ num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:            10            100  java.lang.String (java.base@17.0.15)
   2:             3           4000  [B (java.base@17.0.15)
Total            13           4100
"""


def test_threads_have_their_state_frames_and_locks_and_stacks_of_deadlocks_are_not_told_twice():
    cashier, queue, worker, machine = read_threads(THREADS)
    assert (cashier.name, cashier.native, cashier.daemon, cashier.cpu_ms) == ("cashier", 0x1D, False, 0.31)
    assert cashier.state == "BLOCKED (on object monitor)"
    assert cashier.frames == [
        "Shop.pay(Shop.java:11)",
        "- waiting to lock <0x0b> (a java.lang.Object)",
        "- locked <0x0a> (a java.lang.Object)",
    ]
    assert (queue.name, queue.daemon, queue.cpu_ms) == ('a \\"queue\\" #2', True, 1200.5)
    assert worker.frames and (machine.name, machine.state, machine.frames) == ("VM Thread", "", [])


def test_who_waits_is_told_with_who_holds_it_and_not_who_waits_for_work():
    told = [(one.thread, one.lock, one.holder) for one in waits_of(THREADS)]
    assert told == [
        ("cashier", "java.lang.Object <0x0b>", None),
        ('a \\"queue\\" #2', "java.util.concurrent.locks.ReentrantLock$NonfairSync <0x0c>", "cashier"),
    ]


def test_deadlocks_are_the_jvms_own_words():
    (text,) = read_deadlocks(THREADS)
    assert text.splitlines()[0] == '"cashier":' and text.endswith('which is held by "stock"')


def test_classes_come_most_bytes_first_without_their_module():
    count, size, classes = read_classes(CLASSES)
    assert (count, size) == (13, 4100)
    assert [(one.name, one.count, one.size) for one in classes] == [
        ("[B", 3, 4000),
        ("java.lang.String", 10, 100),
    ]


def test_properties_are_read_as_they_were_written():
    text = "#Mon Nov 23\nline.separator=\\n\npath=C\\:\\\\tmp\\=x\nname\\=odd=\\u00e4\nempty=\n"
    assert read_properties(text) == {
        "line.separator": "\n",
        "path": "C:\\tmp=x",
        "name=odd": "ä",
        "empty": "",
    }


def test_of_what_is_no_such_text_nothing_is_told():
    for text in ("", "\0", '"half', "Found one Java-level deadlock:", "\u2028\n1: x"):
        assert read_threads(text) == waits_of(text) == []
        assert read_classes(text) == (0, 0, [])
        read_properties(text)
        read_deadlocks(text)
