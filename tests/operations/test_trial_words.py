"""A trial in words, as all faces have it."""

from __future__ import annotations

from relive.model.commit import CommitId
from relive.model.trial import Effects, FixRun, FixTried, NeighbourDifference, NotSwapped, Swapped, Trial
from relive.operations.trial_words import TRIAL_COLUMNS, bad_rows, fix_notes, trial_lines, trial_rows

FAILS = FixRun(fails=True, result="fails the same", status=500, exception="KeyError:\n 1", seconds=0.5)
PASSES = FixRun(
    fails=False,
    result="no failure",
    status=201,
    effects=Effects(calls={"query": 3}, unanswered=2, files=["/a"]),
)
SWAPPED = Swapped(swapped=["app.py: pay"], left=[NotSwapped(file="app.py", name="main", why="it runs")])
FIXES = [
    FixTried(name="none", kind="none", runs=[FAILS, PASSES]),
    FixTried(
        name="patch 1", kind="patch", runs=[PASSES], swapped=SWAPPED, still_there=0.25, more_runs=9, neighbours=4,
        breaks=[
            NeighbourDifference(request=2, asked="GET /", difference="status 500 was recorded, 200 came", cured=True),
            NeighbourDifference(request=3, asked="GET /", difference="status 500 came"),
        ],
    ),
    FixTried(name="patch 2", kind="patch", refused="it does not apply"),
]  # fmt: skip
TRIAL = Trial(
    incident=3, service="s", commit=CommitId("c" * 64), request=7, recorded=FAILS, noise=["the body"], failed=1, ran=2,
    prior="even", fixes=FIXES,
)  # fmt: skip


def test_a_row_for_what_was_recorded_and_for_each_fix():
    rows = trial_rows(TRIAL)
    assert rows == [
        ["recorded", "fails the same", "500", "KeyError: 1", "500.0 ms", "", "", ""],
        ["none", "fails the same 1 of 2, no failure 1 of 2", "500", "KeyError: 1", "500.0 ms", "", "", ""],
        ["patch 1", "no failure", "201", "", "", "3 (2 unanswered)", "1", "25%"],
        ["patch 2", "refused", "", "it does not apply", "", "", "", ""],
    ]
    assert {len(row) for row in rows} == {len(TRIAL_COLUMNS)}
    assert bad_rows(TRIAL) == {0, 1, 3}


def test_what_is_to_be_said_beside_it():
    assert trial_lines(TRIAL)[1] == "Noise between two runs of it: the body"
    assert "failed 1 of 2" in trial_lines(TRIAL)[0]
    alone = TRIAL.model_copy(update={"around": 5, "fixes": FIXES[:1]})
    assert "nothing is known of neighbours" in trial_lines(alone)[1]
    notes = list(fix_notes(FIXES[1], FAILS))
    assert notes[:3] == ["code: app.py: pay", "not swapped: app.py: main: it runs", "files: /a"]
    assert notes[3].startswith("9 more clean runs") and notes[4].startswith("1 of 4 neighbouring requests")
    assert notes[5] == "request 3 (GET /): status 500 came"
    assert notes[6].startswith("also cured: request 2 (GET /)")
    assert list(fix_notes(FIXES[2], FAILS)) == ["refused: it does not apply"]


def test_side_effects_are_told_beside_those_of_the_failing_run():
    recorded = FAILS.model_copy(update={"effects": Effects(calls={"query": 1}, files=None)})
    assert trial_rows(TRIAL.model_copy(update={"recorded": recorded}))[0][5:7] == ["1", ""]
    assert "calls: 3 query; recorded: 1 query" in list(fix_notes(FIXES[1], recorded))
    same = recorded.model_copy(update={"effects": Effects(calls={"query": 3}, files=None)})
    assert not [one for one in fix_notes(FIXES[1], same) if one.startswith("calls")]


def test_how_a_run_without_an_exception_failed_and_what_failed_beside_it_are_told_once():
    moved = NeighbourDifference(request=1, asked="GET /a", difference="the connection broke")
    hung = FixRun(
        fails=True, result="fails otherwise", seconds=10, difference="no answer came", elsewhere=[moved]
    )
    tried = FixTried(name="patch 1", kind="patch", runs=[hung, hung, PASSES])
    notes = list(fix_notes(tried, FAILS))
    assert notes.count("no answer came") == 1
    assert "also fails: request 1 (GET /a): the connection broke, in 2 of 3 runs" in notes
    near = tried.model_copy(update={"neighbours": 1, "breaks": [moved]})
    assert [one.startswith("also fails") for one in fix_notes(near, FAILS)].count(True) == 0
