"""What was seen becomes a sighting: one summary for people, one fingerprint for what counts as the same."""

from __future__ import annotations

import signal

import pytest

from relive.agent.failures.sightings import (
    answer_sighting,
    broken_sighting,
    exception_sighting,
    exit_sighting,
    fatal_sighting,
    hang_sighting,
    held_by_dead_criu,
    is_due_to_stop,
    memory_sighting,
    sender_of,
    took_along,
    worker_end_sighting,
)
from relive.model.incident import FailureKind

NOW = 1_700_000_000_000_000_000
MESSAGE = {
    "request": 7,
    "method": "POST",
    "target": "/pay?id=17",
    "status": 503,
    "sequence": 90,
    "log_begin": 12,
    "seconds": 30.2,
}


@pytest.mark.parametrize(
    ("make", "kind", "summary", "fingerprint"),
    [
        (
            answer_sighting,
            FailureKind.ANSWER,
            "request 7 (POST /pay?id=17) was answered with status 503",
            "answer 503 POST /pay",
        ),
        (
            lambda message, now: answer_sighting(message | {"status": 200, "grpc": 13}, now),
            FailureKind.ANSWER,
            "request 7 (POST /pay?id=17) was answered with gRPC status 13 INTERNAL",
            "answer gRPC 13 POST /pay",
        ),
        (
            broken_sighting,
            FailureKind.BROKEN,
            "the service closed the connection before request 7 (POST /pay?id=17) was answered",
            "broken POST /pay",
        ),
        (
            hang_sighting,
            FailureKind.HANG,
            "request 7 (POST /pay?id=17) had no answer after 30 s",
            "hang POST /pay",
        ),
    ],
)
def test_a_failure_of_a_request(make, kind, summary, fingerprint):
    seen = make(MESSAGE, NOW)
    assert (seen.kind, seen.summary, seen.fingerprint) == (kind, summary, fingerprint)
    assert (seen.request, seen.sequence, seen.log_begin, seen.seen_wall_ns) == (7, 90, 12, NOW)


@pytest.mark.parametrize("make", [answer_sighting, broken_sighting, hang_sighting])
def test_the_query_does_not_make_another_failure(make):
    other = MESSAGE | {"request": 8, "target": "/pay?id=18"}
    assert make(other, NOW).fingerprint == make(MESSAGE, NOW).fingerprint
    elsewhere = MESSAGE | {"target": "/refund"}
    assert make(elsewhere, NOW).fingerprint != make(MESSAGE, NOW).fingerprint


@pytest.mark.parametrize("make", [answer_sighting, broken_sighting, hang_sighting])
def test_what_the_message_does_not_say_is_not_made_up(make):
    seen = make({"request": 7, "status": 500, "seconds": 1.0}, NOW)
    assert "request 7" in seen.summary
    assert "None" not in seen.summary + seen.fingerprint
    assert seen.sequence is None


def test_a_reset_is_told_apart_from_a_close():
    assert "reset the connection" in broken_sighting(MESSAGE | {"how": "reset"}, NOW).summary


def fatal(address: int | None = 0x10):
    return fatal_sighting(11, "SEGV_MAPERR", address, "worker", 9, 12, NOW)


def test_a_fatal_signal_names_process_and_address():
    seen = fatal()
    assert seen.summary == "worker (pid 9) got SIGSEGV at address 0x10"
    assert (seen.kind, seen.signal, seen.pid, seen.thread, seen.address) == (
        FailureKind.SIGNAL,
        11,
        9,
        12,
        16,
    )
    assert fatal(None).summary == "worker (pid 9) got SIGSEGV"


def test_a_fatal_signal_belongs_to_a_request_only_when_one_was_open():
    about = {"sequence": 90, "began_wall_ns": 7, "log_begin": 12, "method": "GET"}
    one, two = took_along(fatal(), [4], about), took_along(fatal(), [4, 5], about)
    assert (one.request, one.open_requests, one.sequence) == (4, [4], 90)
    assert (two.request, two.open_requests, two.sequence) == (None, [4, 5], 90)


@pytest.mark.parametrize(("kills", "words"), [(1, "killed a process of"), (3, "killed 3 processes of")])
def test_a_kill_for_want_of_memory(kills, words):
    seen = memory_sighting(kills, NOW)
    assert words in seen.summary
    assert (seen.kind, seen.signal) == (FailureKind.MEMORY, 9)


@pytest.mark.parametrize("status", [0, int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGHUP)])
def test_an_end_that_was_asked_for_is_no_failure(status):
    assert exit_sighting(status, stop_asked=False, now_ns=NOW) is None


def test_a_stop_that_was_refused_long_ago_explains_no_end():
    assert [is_due_to_stop(asked, 100.0) for asked in (None, 100.0, 20.0, 9.0)] == [False, True, True, False]


@pytest.mark.parametrize("status", [1 << 8, 143 << 8, int(signal.SIGKILL), int(signal.SIGQUIT)])
def test_any_end_after_a_stop_is_no_failure(status):
    assert exit_sighting(status, stop_asked=True, now_ns=NOW) is None


def test_an_exit_status_is_a_failure():
    seen = exit_sighting(3 << 8, stop_asked=False, now_ns=NOW)
    assert seen is not None
    assert (seen.kind, seen.exit_status, seen.summary) == (
        FailureKind.EXIT,
        3,
        "the service ended with status 3",
    )


def test_a_signal_is_a_failure():
    seen = exit_sighting(int(signal.SIGSEGV), stop_asked=False, now_ns=NOW)
    assert seen is not None
    assert (seen.kind, seen.signal, seen.exit_status) == (FailureKind.SIGNAL, 11, 139)
    assert seen.summary == "the service was killed by SIGSEGV"


def test_a_fault_of_a_service_that_a_killed_criu_held_is_no_failure_of_its_own():
    end = exit_sighting(int(signal.SIGTRAP), stop_asked=False, now_ns=NOW)
    assert end is not None
    seen = held_by_dead_criu(end)
    assert seen.summary == (
        "the service was killed by SIGTRAP when CRIU, which held it for a commit, was killed; that is most likely the cause"
    )
    assert seen.from_outside
    assert seen.fingerprint != end.fingerprint


def test_an_end_that_nobody_could_note_is_a_killed_capsule():
    seen = exit_sighting(None, stop_asked=False, now_ns=NOW)
    assert seen is not None
    assert seen.summary == "the capsule was killed (SIGKILL)"


TOLD = {
    "type": "builtins.KeyError",
    "text": "1386\nand more",
    "fingerprint": "ab" * 8,
    "where": "handler",
    "at": ("/srv/ledger.py", 127, "pay"),
    "pid": 9,
}


def test_an_exception_is_told_with_its_place_and_its_request():
    about = {"request": 12, "method": "POST", "target": "/payments", "sequence": 90, "log_begin": 12}
    sighting = exception_sighting(TOLD, about, NOW, throw="throw-9-1", ends_service=False)
    assert sighting.summary == "KeyError: 1386 in pay (ledger.py:127), request 12 (POST /payments)"
    assert sighting.fingerprint == f"exception {'ab' * 8}"
    assert (sighting.kind, sighting.request, sighting.sequence) == (FailureKind.EXCEPTION, 12, 90)
    assert (sighting.throw, sighting.pid, sighting.exit_status) == ("throw-9-1", 9, None)


def test_an_exception_outside_of_requests_says_where_and_whether_the_service_ends():
    thread = exception_sighting(TOLD | {"where": "thread"}, {}, NOW, throw=None, ends_service=False)
    assert thread.summary.endswith(", in a thread")
    assert (
        exception_sighting(TOLD | {"where": "main"}, {}, NOW, throw=None, ends_service=True).exit_status == 1
    )


def test_what_a_service_tells_of_itself_need_not_be_sensible():
    odd = {"type": 7, "text": None, "at": "nowhere", "pid": "x", "fingerprint": "f" * 1000}
    sighting = exception_sighting(odd, {}, NOW, throw=None, ends_service=False)
    assert len(sighting.fingerprint) < 100
    assert sighting.pid is None


@pytest.mark.parametrize(
    ("code", "sender", "own", "words", "outside"),
    [
        ("SEGV_MAPERR", None, True, None, False),
        ("SI_TKILL", 9, True, "by the process itself (tgkill, raise or abort)", False),
        ("SI_USER", 2, True, "by pid 2, gunicorn (kill)", False),
        ("SI_USER", 77, True, "by pid 77, which is gone (kill)", False),
        ("SI_USER", 0, True, "from outside, by a process that its PID namespace does not show (kill)", True),
        ("SI_QUEUE", 77, False, "from outside, by pid 77 (sigqueue)", True),
    ],
)
def test_who_sent_a_signal(code, sender, own, words, outside):
    assert sender_of(code, sender, 9, {2: "gunicorn", 9: "gunicorn"}, own_namespace=own) == (words, outside)


def test_a_workers_signal_is_told_as_a_workers():
    sender = sender_of("SI_USER", 0, 9, {}, own_namespace=True)
    seen = fatal_sighting(11, "SI_USER", None, "gunicorn", 9, 9, NOW, worker_of="gunicorn", sender=sender)
    assert seen.summary.startswith("worker 9 of gunicorn got SIGSEGV, sent from outside")
    assert seen.worker and seen.from_outside


@pytest.mark.parametrize(
    ("status", "comm", "pid", "summary", "kind"),
    [
        (
            9,
            "gunicorn",
            7,
            "worker 7 of gunicorn was killed by SIGKILL; the kernel does not tell who sent it",
            "signal",
        ),
        (11, "child", 7, "worker 7 of gunicorn (child) died of SIGSEGV", "signal"),
        (
            None,
            None,
            None,
            "a worker of gunicorn ended during the commit; how is not known, since nobody traced it then",
            "exit",
        ),
        (7 << 8, "gunicorn", 7, "worker 7 of gunicorn ended with status 7", "exit"),
    ],
)
def test_the_end_of_a_worker(status, comm, pid, summary, kind):
    seen = worker_end_sighting(status, comm, pid, "gunicorn", NOW)
    assert (seen.summary, seen.kind, seen.worker) == (summary, kind, True)


def test_a_worker_that_was_asked_to_end_has_not_failed():
    assert worker_end_sighting(143 << 8, "gunicorn", 7, "gunicorn", NOW) is None
