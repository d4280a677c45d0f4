"""Standing still after a failure: for a living agent only, once for each failure, a few in a minute, never beyond the limit."""

from __future__ import annotations

from relive.recording.events import EventKind

AGENT = """
import os, threading, time
from relive_recorder.recorder import recorder
rings = recorder.options.rings
def beat(ago=0):
    now = time.monotonic_ns() - ago
    os.close(os.open(rings + "/agent.alive", os.O_CREAT | os.O_WRONLY))
    os.utime(rings + "/agent.alive", ns=(now, now))
def agent():
    while True:
        beat()
        for name in os.listdir(rings):
            if name.startswith("throw-"):
                os.unlink(rings + "/" + name)
        time.sleep(0.001)
def fail(name):
    made = {}
    exec("def %s(): raise KeyError(1)" % name, made)
    thread = threading.Thread(target=made[name])
    thread.start()
    thread.join()
"""


def waited(ran) -> list[bool]:
    assert "recorder switched off" not in ran.err
    return ["throw" in one.fields for one in ran.of(EventKind.FAILURE)]


def test_each_failure_once_and_few_of_all(run_recorded):
    """The agent is played: it lets each thread go on at once. With a limit of an hour nobody would end by himself."""
    program = "beat(); threading.Thread(target=agent, daemon=True).start()\n"
    program += "for n in range(10):\n    fail('f%d' % n); fail('f%d' % n)\n"
    ran = run_recorded(AGENT + program, wait_ms=3_600_000)
    assert waited(ran) == [True, False] * 6 + [False, False] * 4


def test_an_agent_that_does_nothing_is_waited_for_no_longer_than_the_limit(run_recorded, tmp_path):
    ran = run_recorded(AGENT + "beat(); fail('f'); print(os.listdir(rings))\n", wait_ms=20)
    assert waited(ran) == [True]
    assert "throw-" not in ran.out


def test_an_agent_that_is_gone_is_not_waited_for(run_recorded):
    ran = run_recorded(AGENT + "beat(5_000_000_000); fail('f')\n", wait_ms=3_600_000)
    assert waited(ran) == [False]


def test_nobody_waits_where_policy_says_so(run_recorded):
    assert waited(run_recorded(AGENT + "beat(); fail('f')\n", wait_ms=0)) == [False]
