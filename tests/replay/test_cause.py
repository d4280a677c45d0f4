"""What shows the cause of a failure, and what was missing in a branch."""

from __future__ import annotations

import pytest

from relive.model.outcome import (
    End,
    Fault,
    InsideEvent,
    Miss,
    Outcome,
    Stranger,
    Stubbed,
    ThreadPlace,
    VerdictKind,
)
from relive.replay.cause import find_cause, missing_words
from relive.replay.verdict import Earlier, compare

SAME, REPRODUCED = VerdictKind.SAME_ANSWER, VerdictKind.REPRODUCED
HARMLESS = ["Traceback (most recent call last):", '  File "app.py", line 1, in parse', "ValueError: none"]
REAL = ["Traceback (most recent call last):", '  File "app.py", line 9, in price', "KeyError: 'EUR'"]
OTHER = [
    "Traceback (most recent call last):",
    '  File "app.py", line 5, in ask',
    "ConnectionRefusedError: [111]",
]


def bad(*log: str, events: list[InsideEvent] | None = None, **more) -> Outcome:
    return Outcome(end=End.ANSWERED, status=500, log=list(log), events=events, **more)


def raised(kind: str, fingerprint: str) -> InsideEvent:
    return InsideEvent(kind="failure", lane=0, about={"type": kind, "fingerprint": fingerprint})


def asked() -> InsideEvent:
    return InsideEvent(kind="query", lane=0, about={"asked": {"statement": "select 1"}})


def fault(address: int | None = 0x5000, instruction: int | None = 0x401000, **more) -> Outcome:
    place = ThreadPlace(thread=2, instruction=instruction, stack=0x7FF0) if instruction is not None else None
    facts = {"process": 2, "is_root": True, "signal": 11, "code": "SEGV_MAPERR", "address": address}
    log = more.pop("log", [])
    facts |= {"callers": [0x401100, 0x401200]} | more
    return Outcome(end=End.DIED, signal=11, exit_status=139, fault=Fault(place=place, **facts), log=log)


def killed(out_of_memory: bool) -> Outcome:
    return Outcome(end=End.DIED, signal=9, exit_status=137, out_of_memory=out_of_memory)


def silent(*places: tuple[int, int], runs: bool = False) -> Outcome:
    found = [
        ThreadPlace(thread=n, instruction=ip, stack=sp, runs=runs) for n, (ip, sp) in enumerate(places, 1)
    ]
    return Outcome(end=End.NO_ANSWER, places=found)


KEY = "builtins.KeyError"
CASES = {
    "the same exception inside": (
        bad(events=[raised(KEY, "f")]),
        bad(events=[raised(KEY, "f")]),
        "KeyError, from the same frames",
        None,
    ),
    "another exception inside": (
        bad(events=[raised(KEY, "f")]),
        bad(events=[raised("OSError", "g")]),
        None,
        "KeyError was recorded, OSError came",
    ),
    "the same type from elsewhere": (
        bad(events=[raised(KEY, "f")]),
        bad(events=[raised(KEY, "g")]),
        None,
        "KeyError came from other frames",
    ),
    "an exception that was not recorded": (
        bad(events=[asked()]),
        bad(events=[asked(), raised(KEY, "f")]),
        None,
        "none was recorded, KeyError came",
    ),
    "an exception inside outweighs the log": (
        bad(*REAL, events=[raised(KEY, "f")]),
        bad(*REAL, events=[raised("OSError", "g")]),
        None,
        "OSError came",
    ),
    "the same stack": (bad(*REAL), bad(*REAL), "KeyError: 'EUR'", None),
    "a harmless stack, then another": (
        bad(*HARMLESS, *REAL),
        bad(*HARMLESS, *OTHER),
        None,
        "KeyError: 'EUR'",
    ),
    "stacks of two threads in another order": (
        bad(*REAL, *HARMLESS),
        bad(*HARMLESS, *REAL),
        "ValueError: none",
        None,
    ),
    "a stack on one side": (bad(*REAL), bad("sorry"), None, None),
    "the same last line": (bad("no rate 17"), bad("no rate 18"), "no rate 17", None),
    "another last line": (bad("no rate"), bad("no server"), None, None),
    "the same last line, indented below another": (
        bad("no rate", "  at the end of all"),
        bad("no server", "  at the end of all"),
        None,
        None,
    ),
    "the same line with those below it": (
        bad("no rate", "  of 17"),
        bad("no rate", "  of 18"),
        "no rate",
        None,
    ),
    "a stack of Ruby with another exception": (
        bad("ERROR TypeError: nil", "\tloans.rb:7:in `total'"),
        bad("ERROR KeyError: USD", "\tloans.rb:7:in `total'"),
        None,
        "'TypeError: nil' was recorded",
    ),
    "an access log alone": (bad('"GET /" 500 -'), bad('"GET /" 500 -'), None, None),
    "nothing at all": (bad(), bad(), None, None),
    "calls that were answered": (bad(events=[asked()]), bad(events=[asked()]), "1 call of the request", None),
    "the same fault": (fault(), fault(), "SEGV_MAPERR) at address 0x5000 by instruction 0x401000", None),
    "a null pointer instead": (
        fault(),
        fault(0),
        None,
        "at address 0x5000 by instruction 0x401000 was recorded",
    ),
    "another instruction": (fault(), fault(instruction=0x402000), None, "0x402000 came"),
    "sent, not met": (fault(), fault(code="SI_USER"), None, "SI_USER"),
    "a worker instead of the first process": (fault(), fault(is_root=False), None, "another process did"),
    "by other calls": (fault(), fault(callers=[0x401100, 0x401300]), None, None),
    "by fewer calls": (fault(), fault(callers=[0x401100]), None, None),
    "by calls that nobody kept": (fault(callers=None), fault(), None, None),
    "by other calls, with the same last line": (
        fault(log=["serving 1"]),
        fault(callers=[0x401300], log=["serving 2"]),
        None,
        None,
    ),
    "by other calls, with the same stack": (
        fault(log=REAL),
        fault(callers=[0x401300], log=REAL),
        "KeyError",
        None,
    ),
    "by other calls, with another stack": (
        fault(log=REAL),
        fault(callers=[0x401300], log=OTHER),
        None,
        "ConnectionRefusedError",
    ),
    "a fault without its registers": (fault(instruction=None), fault(), None, None),
    "threads where they were": (
        silent((0x1000, 0x7F00)),
        silent((0x1002, 0x9F00), (0x5000, 0)),
        "1 threads stand",
        None,
    ),
    "threads where they were, and one that waits as it did by fewer calls": (
        silent((0x1000, 0x7F00), (0x2000, 0x7E00)),
        silent((0x1000, 0x9F00), (0x2000, 0x9E70)),
        "1 threads stand",
        None,
    ),
    "a thread that waits as it did by fewer calls, alone": (
        silent((0x2000, 0x7E00)),
        silent((0x2000, 0x9E70)),
        None,
        None,
    ),
    "a loop that comes by": (
        silent((0x1000, 0x7F00)),
        silent((0x3000, 0x7F00), (0x1020, 0x7F10), runs=True),
        "1 threads",
        None,
    ),
    "a loop elsewhere": (silent((0x1000, 0x7F00)), silent((0x1200, 0x7F00), runs=True), None, None),
    "a loop deeper in calls": (silent((0x1000, 0x7F00)), silent((0x1000, 0x7A00), runs=True), None, None),
    "killed for want of memory": (killed(True), killed(True), "for want of memory on both sides", None),
    "killed for want of memory, and by somebody": (
        killed(True),
        killed(False),
        None,
        "in the branch it did not",
    ),
    "killed by somebody, and for want of memory": (
        killed(False),
        killed(True),
        None,
        "not what was recorded",
    ),
    "threads elsewhere": (silent((0x1000, 0x7F00)), silent((0x3000, 0x7F00)), None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_evidence_that_both_sides_have_decides(name):
    """Evidence, a difference, or what could not be seen: exactly one of the three."""
    recorded, replayed, evidence, difference = CASES[name]
    found = find_cause(recorded, replayed)
    assert [bool(found.evidence), found.difference is not None, bool(found.unseen)].count(True) == 1, found
    assert evidence is None or evidence in found.evidence[0]
    assert bool(evidence) is bool(found.evidence)
    assert (difference is None) is (found.difference is None)
    assert difference is None or difference in found.difference


@pytest.mark.parametrize(
    ("replayed", "words"),
    [
        (bad(*REAL, unreached=[Stranger(to="127.0.0.1:5432", times=2)]), "127.0.0.1:5432 (2 times)"),
        (bad(*REAL, cut_off=["10.0.0.1:6379"]), "10.0.0.1:6379 was open in the commit"),
        (
            bad(
                *REAL,
                stubs=Stubbed(
                    continued=0, given=1, missed=0, strangers=[Stranger(to="10.0.0.1:80", times=1)]
                ),
            ),
            "10.0.0.1:80 was never recorded (once)",
        ),
        (bad(*REAL, misses=[Miss(kind="query", asked={}, policy="fail")]), "1 call had no recorded answer"),
    ],
)
def test_what_was_missing_stands_before_reproduced(replayed, words):
    assert compare(bad(*REAL), bad(*REAL)).kind is REPRODUCED
    verdict = compare(bad(*REAL), replayed)
    assert verdict.kind is SAME
    assert words in verdict.unseen[0]
    assert verdict.evidence != []


def test_an_earlier_request_that_ended_otherwise_stands_before_reproduced():
    """The state had gone another way. A body that differs, of a time or a number, does not show that."""
    status, body = (Earlier("request 3: oh", ended_otherwise=ended) for ended in (True, False))
    assert compare(bad(*REAL), bad(*REAL), earlier=status).unseen == ["before it: request 3: oh"]
    assert compare(bad(*REAL), bad(*REAL), earlier=body).kind is REPRODUCED


def test_what_another_request_asked_in_vain_is_no_lack_of_the_judged_one():
    """Where it is known inside which calls are its own. Had the other one answered otherwise, that would count."""
    missed = [Miss(kind="query", asked={}, policy="fail")]
    own = InsideEvent(kind="miss", lane=0, about={"asked": {}})
    assert missing_words(bad(misses=missed, events=[asked()])) == []
    assert missing_words(bad(misses=missed, events=[own])) == ["1 call had no recorded answer"]
    assert missing_words(bad(misses=missed)) == ["1 call had no recorded answer"]
    border = [Miss(kind="query", asked={}, policy="fail", to="10.0.0.1:80")]
    assert missing_words(bad(misses=border, events=[asked()])) == ["1 call had no recorded answer"]


def test_many_that_were_missing_are_cut():
    words = missing_words(bad(unreached=[Stranger(to=f"127.0.0.1:{port}", times=1) for port in range(1, 9)]))
    assert len(words) == 6
    assert words[-1] == "and 3 more"


def test_a_good_answer_needs_no_cause():
    verdict = compare(Outcome(end=End.ANSWERED, status=200), Outcome(end=End.ANSWERED, status=200))
    assert (verdict.kind, verdict.unseen) == (REPRODUCED, [])


def left(*log: str, after: tuple[str, ...] = ()) -> Outcome:
    return Outcome(end=End.DIED, exit_status=5, worker=True, log=list(log), log_after=list(after))


@pytest.mark.parametrize(
    ("came", "is_seen"),
    [
        (["take 3", "the stock is negative"], True),
        (["take 3", "the stock is negative", "[12] worker 9 has ended"], True),
        (["take 3", "the stock is negative", "[12] worker 9 has ended", "[12] another"], True),
        (["take 3", "no connection", "[12] worker 9 has ended"], False),
        (["take 3", "[12] worker 9 has ended"], False),
        ([], False),
    ],
)
def test_what_a_master_says_of_a_workers_exit_is_not_what_the_worker_wrote_last(
    came: list[str], is_seen: bool
) -> None:
    recorded = left(
        "take 1", "the stock is negative", after=("[7] worker 8 has ended", "[7] another", "[8] begins")
    )
    assert (compare(recorded, left(*came)).kind is REPRODUCED) is is_seen
