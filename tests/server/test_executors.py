from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

from relive.server.executors import SILENCE_MOST, dead_among, this_process

LONG_AGO = int((SILENCE_MOST + 5) * 1e9)


def test_a_process_that_is_there_lives_however_long_it_is_silent():
    here = this_process()
    assert dead_among([replace(here, beat_ns=here.beat_ns - LONG_AGO)]) == []


def test_each_has_an_id_of_its_own():
    assert this_process().id != this_process().id


def test_a_number_that_another_process_has_now_is_dead():
    here = this_process()
    gone = replace(here, start_ticks=here.start_ticks - 1)
    assert dead_among([here, gone]) == [gone]


def test_a_process_that_has_ended_is_dead_at_once():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    gone = replace(this_process(), pid=process.pid)
    assert dead_among([gone]) == [gone]


def test_of_a_process_in_another_namespace_only_its_silence_tells():
    now = time.monotonic_ns()
    elsewhere = replace(this_process(), namespace=1, pid=1 << 22)
    assert dead_among([replace(elsewhere, beat_ns=now)]) == []
    silent = replace(elsewhere, beat_ns=now - LONG_AGO)
    assert dead_among([silent]) == [silent]
    assert dead_among([silent.alive()]) == []


def test_what_ran_before_the_host_started_is_dead():
    gone = replace(this_process(), boot="another")
    assert dead_among([gone]) == [gone]
