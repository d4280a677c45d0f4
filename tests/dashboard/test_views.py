"""Every page without a browser: what it says where there is nothing, where something is, and where it cannot be read."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from relive.config import Settings
from relive.dashboard import protection
from relive.dashboard.jobs import JOBS
from relive.dashboard.look import label
from relive.images import criu_images_pb2 as pb
from relive.kernel import procfs
from relive.kernel.claims import claimed
from relive.model.branch import BranchFacts, Clock
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.commit import CommitId
from relive.model.commit_policy import parse_every
from relive.model.life_paths import LifePaths
from relive.model.outcome import End, Outcome, Replay, Run, Verdict, VerdictKind
from relive.model.pace import PaceState
from relive.model.protection import Trouble
from relive.operations.rolling_back import ROLLBACK, RollbackParams
from relive.operations.runs import save_replay
from relive.operations.targets import RunningTarget
from relive.store import Store
from store.builders import SECOND, commit
from support.waiting import eventually

from .failures import BEGAN_NS, incident, package


def said(app: AppTest) -> str:
    """All that stands on the page."""
    plain = [
        *app.title,
        *app.header,
        *app.info,
        *app.success,
        *app.warning,
        *app.error,
        *app.caption,
        *app.markdown,
        *app.text,
    ]
    marked = [element.proto.body for element in app.get("html")]
    links = [element.proto.label for element in app.get("page_link")]
    return "\n".join([*(element.value for element in plain), *marked, *links])


def linked(app: AppTest) -> list[str]:
    """What the links that ask for something ask for."""
    return [element.proto.query_string for element in app.get("page_link") if element.proto.query_string]


def ended(home: Path) -> None:
    """Wait for what was begun on a page."""
    eventually(lambda: not any(job.is_running for job in JOBS.of(home)), "the job ends", limit=60)


def test_pages_without_anything_say_what_to_do(look):
    app = look("incidents")
    assert "Nothing has failed yet" in said(app)
    for page, words in {
        "commits": "Nothing has been committed yet",
        "branches": "No branch runs",
        "runs": "Nothing has been replayed yet",
        "storage": "Press Measure",
        "check": "Name a running process",
        "incident": "Which incident?",
        "commit": "Which commit?",
        "run": "Which run?",
    }.items():
        app.switch_page(f"views/{page}.py").run()
        assert not app.exception
        assert words in said(app), page


def test_what_is_not_there_is_an_error_with_a_remedy(look):
    app = look("incidents")
    for page, name, value, code in (
        ("incident", "number", "9", "incident-unknown"),
        ("commit", "id", "feed", "ref-unknown"),
        ("run", "number", "9", "not-found"),
    ):
        app.switch_page(f"views/{page}.py")
        app.query_params[name] = value
        (error,) = app.run().error
        assert label(code) in error.value
        assert "What to do: " in error.value


@pytest.mark.parametrize("page", ["commits", "storage"])
def test_a_store_that_cannot_be_read_is_said_with_cause_and_remedy(look, home, page):
    Store(home / "store").close()
    (home / "store" / "format").write_text('{"version": 99}')
    app = look(page)
    if page == "storage":
        app.button("gc").click().run()
    (error,) = app.error
    assert "has format 99" in error.value
    assert "Cause: " in error.value
    assert "What to do: use the Relive that wrote it" in error.value


def test_a_setting_that_cannot_be_read_is_said_on_the_page(look, monkeypatch):
    monkeypatch.setenv("RELIVE_KEEP", "none")
    (error,) = look("incidents").error
    assert "KEEP" in error.value.upper()


def test_incidents_come_in_pages_newest_first(look, home):
    numbers = [incident(home, number).number for number in range(45)]
    newest = [f"number={number}" for number in reversed(numbers)]
    app = look("incidents")
    assert linked(app) == newest[:20]
    assert app.button("incidents newer").disabled
    app.button("incidents older").click().run()
    assert linked(app) == newest[20:40]
    app.button("incidents older").click().run()
    assert linked(app) == newest[40:]
    assert app.button("incidents older").disabled
    app.button("incidents newer").click().run()
    assert linked(app) == newest[20:40]


def test_incidents_are_searched_from_the_first_page_on(look, home):
    for number in range(25):
        incident(home, number)
    wanted = incident(home, 100, package("'EUR'"), "it broke at night")
    app = look("incidents")
    app.button("incidents older").click().run()
    app.text_input("search").set_value("EUR").run()
    assert linked(app) == [f"number={wanted.number}"]
    app.text_input("search").set_value("nowhere").run()
    assert "No incident fits" in said(app)


def test_a_story_begins_with_what_failed_and_masks_secrets(look, home):
    one = incident(home, 1, package())
    told = said(look("incident", number=one.number))
    first = told.index('<p class="rl-lead">KeyError: &#x27;EUR&#x27;</p>')
    assert first < told.index("in charge in pay.py, line 57, while it handled POST /pay?token=")
    assert "hunter2" not in told
    assert "return rates[order.currency]" in told
    assert "&lt;Order 7&gt;" in told


def test_what_a_service_says_is_no_markup(look, home):
    hostile = "<script>alert(1)</script><img src=x> ![](http://192.0.2.1/spy) [link](http://192.0.2.1)"
    one = incident(home, 1, package(hostile), f"it said {hostile}")
    for app in (look("incidents"), look("incident", number=one.number)):
        told = said(app)
        assert "alert" in told
        assert not re.search(r"(?<!\\)<(script|img)", told)
        assert not any("](http" in element.proto.label for element in app.get("page_link"))


def test_an_incident_without_a_commit_cannot_be_replayed_and_says_why(look, home):
    button = look("incident", number=incident(home).number).button("replay")
    assert button.disabled
    assert "No commit from before the failure" in button.proto.help


def test_an_action_that_is_refused_is_told_on_the_page(look, home, tmp_path):
    store = Store(home / "store")
    one = commit(store, capture="1", wall_ns=BEGAN_NS, files={"f": b"x"})
    store.close()
    (tmp_path / "there").write_text("something")
    app = look("commit", id=one.id)
    app.text_input("export file").set_value(str(tmp_path / "there")).run()
    app.button("export").click().run()
    ended(home)
    app.run()
    assert "What to do: " in app.error[0].value
    assert (tmp_path / "there").read_text() == "something"


def test_a_commit_is_looked_into_and_searched_on_its_page(look, home):
    entry = pb.PstreeEntry(pid=2, ppid=0, pgid=2, sid=2, threads=[2]).SerializeToString()
    core = pb.CoreEntry(
        mtype=1, tc=pb.TaskCoreEntry(task_state=1, exit_code=0, comm="pay")
    ).SerializeToString()
    images = {
        name: struct.pack("<III", 0x54564319, 1, len(body)) + body
        for name, body in {"pstree.img": entry, "core-2.img": core}.items()
    }
    store = Store(home / "store")
    one = commit(store, capture="1", wall_ns=BEGAN_NS, files={"f": b"x"}, small=images)
    two = commit(store, capture="2", wall_ns=BEGAN_NS + 1, files={"f": b"y"}, small=images, parents=[one.id])
    store.close()
    app = look("commit", id=two.id)
    app.button("inside").click().run()
    assert [header.value for header in app.subheader] == ["2 pay"]
    app.button("changes").click().run()
    assert any("0 of 1 pages of memory differ" in one.value for one in app.markdown)
    app.button("growth").click().run()
    assert any("from three commits on" in one.value for one in app.caption)
    app.text_input("pattern").set_value("gepa").run()
    assert any("found in 4.0 KiB of memory" in one.value for one in app.caption)
    app.text_input("pattern").set_value("re:(").run()
    assert "cannot be looked for in memory" in app.error[0].value


def test_when_something_began_is_asked_on_a_commits_page(look, home):
    store = Store(home / "store")
    commits = [
        commit(store, capture=str(at), wall_ns=BEGAN_NS + at, files={"f": b"x"}, small={"pstree.img": b""})
        for at in range(2)
    ]
    store.close()
    app = look("commit", id=commits[1].id)
    app.text_input("good").set_value(commits[0].id)
    app.text_input("expression").set_value("app.cache is None")
    next(one for one in app.button if one.label == "Find when it began").click().run()
    ended(home)
    app.run()
    assert "the predicate failed in the last commit" in app.error[0].value  # there is no process in it


def test_a_bisection_is_told_with_its_requests_and_values():
    def page() -> None:
        from relive.dashboard.bisected import show_bisection
        from relive.inspection.memory_changes import MemoryChanges
        from relive.inspection.state_changes import FieldChange, StateChanges
        from relive.operations.bisect_result import BisectedCommit, Bisection, Jump, RequestBetween
        from relive.operations.differences import CommitDifference, PythonChanges

        one, two = (
            BisectedCommit(commit=letter * 64, number=at, taken_wall_ns=at) for at, letter in enumerate("ab")
        )
        request = RequestBetween(number=7, method="GET", target="/x?a=<b>", status=404, began_wall_ns=0)
        values = PythonChanges(
            changes=[FieldChange(name="cache['<k>']", before=None, after="1")], compared=1, cut=False
        )
        memory = MemoryChanges.model_construct()
        changes = CommitDifference(
            before=one.commit, after=two.commit, target="s", same_life=True, files=[],
            state=StateChanges.model_construct(), memory=memory, python=values,
        )  # fmt: skip
        jump = Jump(
            before=one, after=two, unjudged=[], begins=True, probability=0.97, sides=None, requests=[request],
            request_count=1, difference=changes, why_no_difference=None,
        )  # fmt: skip
        shared = {"service": "s", "question": "when x", "commits": 2, "lives": 1, "probes": 2, "failed": 0}
        empty = {"probed": [], "suspects": [], "no_jump": None, "two_jumps": None, "curve": []}
        show_bisection(Bisection(**shared, **empty, jumps=[jump], why_not=None))
        show_bisection(Bisection(**shared, **empty, jumps=[], why_not="too few probes"))

    app = AppTest.from_function(page).run()
    assert not app.exception
    told = said(app)
    assert "begins with commit **bbbbbbbbbb**" in told and "probability of 97 %" in told
    assert "/x?a=&lt;b&gt;" in told and "404" in told and "cache[&#x27;&lt;k&gt;&#x27;]" in told
    assert "It cannot be told when it began: too few probes" in told


def test_values_at_a_line_and_who_wrote_one_are_told():
    def page() -> None:
        from relive.dashboard.stepped import show_logged, show_written
        from relive.model.commit import CommitId
        from relive.model.stepping import (
            Logged,
            LoggedHit,
            LoggedRun,
            LoggedValue,
            Place,
            ValueWrite,
            Written,
        )

        shared = {
            "incident": 3,
            "service": "s",
            "failing": "GET /",
            "commit": CommitId("c" * 64),
            "has_requests": True,
        }
        value = LoggedValue(expression="rate", type="str", text="'<b>'", raised=False)
        hit = LoggedHit(request=7, position=2, function="price", values=[value])
        place = {"file": "app.py", "line": 32, "source": "cache[key] = look_up()"}
        for hits in ([hit], []):
            run = LoggedRun(number=1, fails=True, result="fails the same", hits=hits, trouble="<i>late")
            show_logged(Logged(**shared, **place, expressions=["rate"], when=None, runs=[run]))
        where = Place(**place, function="rate_of", request=7, about="request 7 (GET /x)", position=4)
        write = ValueWrite(place=where, before="1", after="'<u>'")
        told = {
            **shared,
            "expression": "x",
            "tried": ["c" * 64],
            "first": "1",
            "last": "2",
            "fails": True,
            "result": "as it was",
        }
        show_written(Written(**told, writes=[write], sentence="It was line 32."))
        show_written(Written(**told, writes=[], sentence="Nothing wrote it."))

    app = AppTest.from_function(page).run()
    assert not app.exception
    told = said(app).replace("\\", "")
    assert "rate = &#x27;&lt;b&gt;&#x27;" in told and "No replay came to that line." in told
    assert "It was line 32." in told and "request 7 (GET /x) @4" in told and "Nothing wrote it." in told
    assert "<b>" not in told and "<u>" not in told


def test_a_schedule_that_was_found_is_told_with_what_keeps_it():
    def page() -> None:
        from relive.dashboard.explored import show_chaos
        from relive.model.chaos import Chaos, Delay, Swap
        from relive.model.commit import CommitId

        shared = {"service": "s", "incident": 3, "request": None, "commit": CommitId("c" * 64), "tried": 4, "clean": 3,
                  "confidence": 0.95, "replays": 6, "seconds": 2.0}  # fmt: skip
        found = {"seed": 38, "varied": "delays", "result": "status 500", "narrowed": True, "run": 7}
        delays = [Delay(place="2:3:1=1", ms=109.4, at="after <b>query")]
        swap = Swap(first="the read", then="the move", more=2)
        show_chaos(
            Chaos(
                **shared, **found, plain=[False], delays=delays, swap=swap, sentence="with seed 38 it fails"
            )
        )
        show_chaos(Chaos(**shared, plain=[True], seed=None, sentence="nobody can tell"))

    app = AppTest.from_function(page).run()
    assert not app.exception
    told = said(app).replace("\\", "")
    assert "incident 3: with seed 38 it fails" in told and "after &lt;b&gt;query" in told
    assert "relive keep 3 --expect 'status == 200' --delay 2:3:1=1=109.4" in told
    assert "Usually the read comes before the move" in told and "incident 3: nobody can tell" in told


def test_a_fix_is_told_beside_the_unchanged_code_and_a_hostile_name_is_text():
    def page() -> None:
        from relive.dashboard.tried import show_trial
        from relive.model.commit import CommitId
        from relive.model.trial import Effects, FixRun, FixTried, Trial

        fails = FixRun(fails=True, result="fails the same", status=500, exception="<b>KeyError", seconds=1.0)
        effects = Effects(calls={"query": 3}, unanswered=1, files=["/srv/a"])
        passes = FixRun(fails=False, result="no failure", status=200, effects=effects)
        fixes = [
            FixTried(name="none", kind="none", runs=[fails, fails]),
            FixTried(name="patch 1 (<script>)", kind="patch", runs=[passes], still_there=0.25),
            FixTried(name="patch 2", kind="patch", refused="it does not apply"),
        ]
        show_trial(
            Trial(incident=3, service="s", commit=CommitId("c" * 64), request=7, recorded=fails, noise=[],
                  failed=2, ran=2, prior="even", fixes=fixes)
        )  # fmt: skip

    app = AppTest.from_function(page).run()
    assert not app.exception
    told = said(app).replace("\\", "")
    assert "fails the same 2 of 2" in told and "25%" in told and "unanswered" in told and "files" in told
    assert "&lt;script&gt;" in told and "<script>" not in said(app) and "<b>KeyError" not in told
    assert "files: /srv/a" in told
    assert "patch 2: refused: it does not apply" in told and "failed 2 of 2" in told


def test_a_patch_that_is_none_is_refused_with_the_reason(home):
    def page() -> None:
        from relive.config import load_settings
        from relive.dashboard.acting import try_form
        from relive.dashboard.working import show_jobs

        settings = load_settings()
        try_form(settings, 1, "incident/1")
        show_jobs(settings, "incident/1")

    incident(home, 1)
    app = AppTest.from_function(page, default_timeout=60).run()
    app.text_area("try patch").set_value("$(touch made)")
    (wanted,) = (one for one in app.button if one.label == "Try it beside the unchanged code")
    wanted.click().run()
    ended(home)
    (error,) = app.run().error
    assert "patch 1 cannot be applied" in error.value.replace("\\", "")


def test_a_cause_is_told_with_the_runs_that_prove_it():
    def page() -> None:
        from relive.dashboard.explained import show_explanation
        from relive.model.commit import CommitId
        from relive.model.intervention import ChangeDescription, Effect, Explanation, Tested
        from relive.model.trial import FixRun

        run = FixRun(result="fails the same", fails=True, seconds=1.0)
        passes = FixRun(result="passes", fails=False, seconds=1.0)
        change = ChangeDescription(
            option="--without 36", about="request 36 (<b>/retire)", recorded="sent", instead="left out"
        )
        shared = {"commit": CommitId("c" * 64), "control": [run]}
        cause = Tested(changes=[change], effect=Effect.GOES_AWAY, runs=[passes], **shared)
        other = Tested(changes=[change], effect=Effect.CANNOT_TELL, why="too few", runs=[passes], **shared)
        told = {
            "incident": 3, "service": "s", "failing": "GET /", "compared_with": None, "replays": 9, "seconds": 2.5,
            "most_replays": 100, "most_seconds": 600.0, **shared,
        }  # fmt: skip
        show_explanation(
            Explanation(
                **told, causes=[cause], tried=[other], sentence="It fails because of 36.", why_not=None
            )
        )
        show_explanation(
            Explanation(**told, causes=[], tried=[], sentence="Cannot tell why.", why_not="no good one")
        )

    app = AppTest.from_function(page).run()
    assert not app.exception
    told = said(app).replace("\\", "")
    assert "It fails because of 36." in told and "request 36 (&lt;b&gt;/retire)" in told
    assert "relive what-if 3 --without 36" in told
    assert "cannot tell" in told and "too few" in told and "Cannot tell why." in told


def test_what_one_change_showed_and_what_can_be_changed_is_told():
    def page() -> None:
        from relive.dashboard.explained import show_explanation
        from relive.model.commit import CommitId
        from relive.model.intervention import Changeable, ChangeDescription, Effect, Experiment, Tested
        from relive.model.trial import FixRun

        run = FixRun(result="fails the same", fails=True, seconds=1.0)
        change = ChangeDescription(
            option="--without 3", about="request 3 (<b>/a)", recorded="sent", instead="left out"
        )
        commit = CommitId("c" * 64)
        tested = Tested(changes=[change], commit=commit, effect=Effect.STAYS, control=[run], runs=[run])
        about = {"incident": 3, "service": "s", "failing": "request 4 (GET /)", "commit": commit}
        show_explanation(Experiment(**about, tested=tested))
        one = Changeable(name="redis:1", request=4, kind="redis", what="GET <i>k", result="None")
        show_explanation(Experiment(**about, changeable=[one], changeable_count=9))

    app = AppTest.from_function(page).run()
    assert not app.exception
    told = said(app).replace("\\", "")
    assert "The failure stays." in told and "request 3 (&lt;b&gt;/a)" in told
    assert "request 4 (GET /), the first 1" in told and "GET &lt;i&gt;k" in told and "redis:1" in told


@pytest.mark.parametrize(
    ("field", "text", "why"), [("answer", "no call", "no call"), ("without", "the third", "without")]
)
def test_a_change_that_cannot_be_read_is_refused_with_the_reason(home, field, text, why):
    def page() -> None:
        from relive.config import load_settings
        from relive.dashboard.acting import what_if_form

        what_if_form(load_settings(), 1, "incident/1")

    incident(home, 1)
    app = AppTest.from_function(page, default_timeout=60).run()
    (app.text_area if field == "answer" else app.text_input)(f"what if {field}").set_value(text)
    (wanted,) = (one for one in app.button if one.label == "Replay with it")
    (error,) = wanted.click().run().error
    assert why in error.value.replace("\\", "")


def test_commits_are_added_up_by_service_and_listed(look, home):
    store = Store(home / "store")
    for number in range(3):
        commit(store, capture=str(number), wall_ns=BEGAN_NS + number * SECOND, files={"f": b"x"})
    store.close()
    assert linked(look("commits")) == ["service=pay"]
    app = look("commits", service="pay")
    assert len([one for one in linked(app) if one.startswith("id=")]) == 3
    assert app.get("plotly_chart")


def test_what_the_clock_does_not_commit_is_said(look, home):
    paths = LifePaths(home / "capsules" / "pay" / "life")
    paths.directory.mkdir(parents=True)
    own = procfs.read_stat(os.getpid())
    spec = CapsuleSpec(name="pay", command=["pay"], directory="/", environment={}, policy=parse_every("30s"))
    facts = CapsuleFacts(
        spec=spec, life="life", init=own.pid, init_started=own.start_ticks, root=own.pid,
        root_inside=1, started_wall_ns=0, points=[],
    )  # fmt: skip
    paths.state.write_text(facts.model_dump_json())
    paths.agent_pid.write_text(f"{own.pid} {own.start_ticks}")
    pace = PaceState(
        wanted_s=30, actual_s=30, share=0.01, expected_us=5_000_000, basis="estimated from 2.2 GiB of memory",
        limit_us=1_000_000, is_held=True,
    )  # fmt: skip
    paths.pace.write_text(pace.model_dump_json())
    (warning,) = look("commits").warning
    assert "Not committed by the clock: a commit would stop it for 5.0 s" in warning.value.replace("\\", "")


def test_a_run_tells_its_verdict_and_what_differed_without_secrets(look, home):
    outcome = Outcome(end=End.ANSWERED, status=500, packets_left=0)
    verdicts = [Verdict(kind=VerdictKind.REPRODUCED),
                Verdict(kind=VerdictKind.DIVERGED, difference="GET /?password=hunter2 was not asked")]  # fmt: skip
    runs = [
        Run(number=number, verdict=verdict, outcome=outcome, forwarded=0, restore_us=9000, seconds=1.0)
        for number, verdict in enumerate(verdicts, 1)
    ]
    result = Replay(service="pay", incident=1, request=7, commit="c" * 64, recorded=outcome, runs=runs)
    save_replay(Settings(home=home), result, BEGAN_NS, 2.0)
    assert "diverged, reproduced 1 of 2" in said(look("runs"))
    told = said(look("run", number=1))
    assert "Verdict: diverged, reproduced 1 of 2" in told
    assert "No packets left the sandboxes" in told
    assert "was not asked" in told
    assert "hunter2" not in told


def test_a_job_about_the_store_shows_its_result(look, home):
    store = Store(home / "store")
    commit(store, capture="1", wall_ns=BEGAN_NS, files={"f": b"x"})
    store.close()
    app = look("storage")
    app.button("measure").click().run()
    ended(home)
    app.run()
    assert app.metric[0].value == "1"


def test_a_process_is_checked(look, home):
    """One of another session, since what the page's process runs below cannot be checked."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as checked:
        try:
            app = look("check")
            app.text_input("target").set_value(f"pid:{checked.pid}").run()
            assert not app.exception
            assert "It can be committed" in said(app) and "memory to save" in said(app)
            app.text_input("target").set_value("pid:4194305").run()
            assert "there is no process 4194305" in said(app)
        finally:
            checked.kill()


def test_services_that_are_not_protected_are_told_before_all_else(look, monkeypatch):
    trouble = Trouble(
        part="commits",
        since_wall_ns=BEGAN_NS,
        times=7,
        code="disk-full",
        message="no space left",
        cause="there are no inodes left",
        remedy="free inodes",
    )
    target = RunningTarget(
        name="pay", life="L1", pid=7, listen=None, command=[], started_wall_ns=1, troubles=(trouble,)
    )
    monkeypatch.setattr(protection, "list_targets", lambda *_: [target])
    (told,) = look("incidents").error
    assert r"pay is not protected\: commits" in told.value
    assert "tried 7 times" in told.value
    assert "no inodes" in told.value
    assert "free inodes" in told.value


def test_a_branch_that_runs_can_be_rolled_back(look, home, monkeypatch):
    begun = []
    monkeypatch.setattr(
        JOBS, "start", lambda _settings, operation, params, **_: begun.append((operation, params))
    )
    own = procfs.read_stat(os.getpid())
    for name, is_owned in (("a1", False), ("b2", True)):  # the second is a replay's
        facts = BranchFacts(
            id=name,
            commit=CommitId("c" * 64),
            name="shop",
            init=os.getpid(),
            init_started=own.start_ticks,
            root=os.getpid(),
            clock=Clock.NOW,
            created_wall_ns=BEGAN_NS,
            restore_us=1,
            is_owned=is_owned,
        )
        (home / "branches" / name).mkdir(parents=True)
        (home / "branches" / name / "state.json").write_text(facts.model_dump_json())
    with claimed(home / "branches" / "b2"):
        app = look("branches")
        assert said(app).count("belongs to a debugger or to another running command") == 1
        app.button("rollback a1").click().run()
        assert not app.exception and "rollback b2" not in {one.key for one in app.button}
    assert begun == [(ROLLBACK, RollbackParams(branch="a1"))]
