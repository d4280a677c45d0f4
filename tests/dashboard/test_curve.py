"""The probability from each commit as a drawing."""

from __future__ import annotations

from relive.dashboard.curve import curve_figure
from relive.operations.bisect_result import BisectedCommit, Bisection, CurvePoint, Jump, RequestBetween


def test_the_band_holds_the_curve_and_the_requests_stand_below_it():
    commits = [
        BisectedCommit(commit=letter * 64, number=at, taken_wall_ns=at * 10**9)
        for at, letter in enumerate("abc")
    ]
    curve = [
        CurvePoint(**one.model_dump(include={"commit", "number", "taken_wall_ns"}), **side)
        for one, side in zip(
            commits,
            [
                {"bad": bad, "probes": 10, "rate": rate, "least": rate - 0.05, "most": rate + 0.05}
                for bad, rate in ((1, 0.1), (9, 0.9), (9, 0.9))
            ],
            strict=True,
        )
    ]
    requests = [
        RequestBetween(number=number, method="GET", target="/<x>", status=status, began_wall_ns=10**9)
        for number, status in ((7, 200), (8, None))
    ]
    jump = Jump(
        before=commits[0], after=commits[1], unjudged=[], begins=True, probability=None, sides=None, requests=requests,
        request_count=2, difference=None, why_no_difference=None,
    )  # fmt: skip
    found = Bisection(
        service="s", question="when x", commits=3, lives=1, probes=30, failed=0, jumps=[jump], probed=commits, suspects=[],
        no_jump=None, two_jumps=None, why_not=None, curve=curve,
    )  # fmt: skip
    least, most, rates, events = curve_figure(found)["data"]
    assert rates["y"] == [10, 90, 90] and rates["customdata"][0] == "<b>aaaaaaaaaa</b>: 1 of 10 (5 to 15 %)"
    assert all(low < at < high for low, at, high in zip(least["y"], rates["y"], most["y"], strict=True))
    assert events["customdata"] == ["7 GET /&lt;x&gt; 200", "8 GET /&lt;x&gt; no answer"]
    assert events["yaxis"] == "y2" and events["marker"]["color"][0] != events["marker"]["color"][1]
