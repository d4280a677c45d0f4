"""A failure's state kept as a test, and fixes tried on it: red with the code that failed, green with the code that does not."""

from __future__ import annotations

import difflib
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.model.trial import TAG_PREFIX
from relive.sandbox.branch import list_branches
from relive.store.keyring import Keyring
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Refused, Relive

BROKEN, FIXED = "return PRICES[item] * 2", "return (PRICES[item] or 1) * 2"
FAST = ("--pace", "fast")
HEALED = "PRICES['tea'] = 4"


@dataclass(frozen=True)
class Shop:
    """The service, of which one request failed, and its source file, which tests change and put back."""

    relive: Relive
    source: Path
    text: str
    incident: str
    commit: str

    def traces(self) -> tuple[list[str], int]:
        """What a branch could leave: its directory, mounts that name this home."""
        branches = self.relive.settings.branches
        home = str(self.relive.home)
        mounts = sum(home in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
        return sorted(one.name for one in branches.iterdir()) if branches.exists() else [], mounts

    def keep(self, output: Path, *options: str) -> dict[str, Any]:
        words = ["--expect", "status == 200", "-o", str(output), "--code", str(self.source.parent), *FAST]
        return self.relive("keep", self.incident, *words, *options)


def ask(port: int, method: str, path: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as client:
        client.request(method, path)
        answer = client.getresponse()
        answer.read()
        return answer.status


@pytest.fixture(scope="module")
def shop(commands: None) -> Iterator[Shop]:
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    place = Path(tempfile.mkdtemp(prefix="relive-files-", dir="/var/tmp"))
    source = place / "poisoned.py"
    shutil.copy(SERVICES / "poisoned_shop.py", source)
    relive, outer, inner = Relive(home, "trial"), free_port(), free_port()
    options = [
        "--every",
        "start",
        "--name",
        "shop",
        "--listen",
        f"127.0.0.1:{outer}",
        "--upstream",
        str(inner),
    ]
    relive("run", "--detach", *options, "--", str(PYTHON), str(source), str(inner))
    eventually(lambda: relive.commits("shop"), "the commit at the start")
    eventually(lambda: ask(outer, "GET", "/price/tea") == 200, "its first answer")
    assert ask(outer, "POST", "/update/tea/none") == 200
    poisoned = relive("commit", "shop")["id"]
    assert ask(outer, "GET", "/price/milk") == 200
    assert ask(outer, "GET", "/price/tea") == 500
    assert ask(outer, "GET", "/stock") == 200

    def seen() -> Any:
        return [one for one in relive.incidents() if one["before"] == poisoned]

    (incident,) = eventually(seen, "the incident")
    yield Shop(relive, source, source.read_text(), str(incident["number"]), poisoned)
    relive.close()
    shutil.rmtree(home)
    shutil.rmtree(place)


@pytest.fixture
def edited(shop: Shop) -> Iterator[Path]:
    """The source with the fix, for one test."""
    shop.source.write_text(shop.text.replace(BROKEN, FIXED))
    yield shop.source
    shop.source.write_text(shop.text)


def run_pytest(shop: Shop, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, with only the plugins that are looked at: to load all that lie here takes longer than the tests."""
    environment = {name: value for name, value in shop.relive.environment.items() if "PYTEST" not in name}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = ["-p", "no:cacheprovider", "-p", "relive.pytest_plugin", "-p", "xdist"]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *plugins, *words, str(directory)]
    return subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=180, check=False
    )


def test_a_kept_state_is_red_with_the_code_that_failed_and_green_with_the_fix(shop, tmp_path, request):
    """The same file, the same state, the same request: only the code that is here differs."""
    made = shop.keep(tmp_path)
    assert made["fails"] == "expected status == 200, but status is 500"
    assert made["commit"] == shop.commit and Path(made["file"]).read_text() == made["content"]
    done = shop.relive.say("kept", made["file"])
    red = json.loads(done.stdout)
    assert (done.returncode, red["met"], red["runs"][0]["swapped"]["swapped"]) == (1, False, [])
    request.getfixturevalue("edited")
    green = shop.relive("kept", made["file"])
    assert green["met"] and green["runs"][0]["swapped"]["swapped"] == ["poisoned.py: Shop.price"]
    assert green["runs"][0]["run"]["outcome"]["body"] == "2"
    done = shop.relive.say("kept", made["file"], "--as-committed")
    assert done.returncode == 1, "the committed code is as it was"
    assert list_branches(shop.relive.settings) == []


def test_its_commit_is_held_and_gc_says_by_whom(shop, tmp_path):
    made = shop.keep(tmp_path, "--name", "held")
    assert made["tag"] == TAG_PREFIX + "held" == "kept-held"
    shop.relive("retain", "--keep", "1", "--minutes", "0", "--hours", "0", "--days", "0", "--months", "0")
    assert "kept-held" in shop.relive("gc", "--grace", "0")["kept"]
    assert shop.commit in [one["id"] for one in shop.relive("log")]
    with pytest.raises(Refused, match="held"):
        shop.relive("delete", shop.commit)
    with pytest.raises(Refused, match="exists"):
        shop.keep(tmp_path, "--name", "held")
    shop.keep(tmp_path, "--name", "held", "--force")


@pytest.mark.timeout(400)
def test_pytest_runs_kept_states_and_the_fixture_beside_each_other(shop, tmp_path, edited):
    """A node for each file, in workers of xdist, with a report for CI; without --relive nothing is run."""
    shop.keep(tmp_path, "--name", "green")
    (tmp_path / "red.relive.yaml").write_text(
        (tmp_path / "green.relive.yaml")
        .read_text()
        .replace("name: green", "name: red")
        .replace("== 200", "== 201")
    )
    (tmp_path / "test_state.py").write_text(
        "def test_state(relive):\n"
        f"    state = relive.restore({shop.commit[:12]!r})\n"
        "    answer = state.replay()\n"
        "    assert answer.status == 500 and 'NoneType' in answer.exception\n"
        f"    assert state.replay(code={{{str(edited.parent)!r}: {str(edited.parent)!r}}}).text == '2'\n"
    )
    done = run_pytest(shop, tmp_path, "--relive", "-n", "2", f"--junitxml={tmp_path / 'report.xml'}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "expected status == 201, but status is 200" in done.stdout
    cases = {one.get("name"): one for one in ET.parse(tmp_path / "report.xml").iter("testcase")}
    assert set(cases) == {"green", "red", "test_state"}
    properties = {one.get("name"): one.get("value") for one in cases["green"].iter("property")}
    assert properties["relive.commit"] == shop.commit
    done = run_pytest(shop, tmp_path)
    assert "1 skipped" in done.stdout and "run it with --relive" in done.stdout


def test_where_the_host_cannot_restore_it_is_skipped_with_the_reason(shop, tmp_path):
    shop.keep(tmp_path, "--name", "elsewhere")
    broken = Relive(shop.relive.home, "elsewhere")
    broken.environment["RELIVE_TOOLS"] = str(tmp_path / "no-tools")
    done = run_pytest(Shop(broken, shop.source, "", "", ""), tmp_path, "--relive")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout and "tool-missing" in done.stdout


def test_a_commit_that_is_not_here_is_fetched_from_its_remote(shop, tmp_path, commands, edited):
    remote = f"file://{tmp_path}/remote"
    made = shop.keep(tmp_path / "tests", "--name", "travelled", "--remote", remote)
    other = Path(tempfile.mkdtemp(prefix="relive-"))
    try:
        there = Relive(other, "other")
        with pytest.raises(Refused) as refused:
            there("kept", made["file"], "--no-pull")
        assert refused.value.code == "ref-unknown"
        trusted = other / "keys" / "trusted"
        trusted.mkdir(parents=True)
        (trusted / "friend.pub").write_text(Keyring(shop.relive.home / "keys").public_key.hex())
        found = there("kept", made["file"])
        assert found["met"] and found["pulled"]
        assert [one["tag"] for one in there("tag")] == ["kept-travelled"]
        assert not there("kept", made["file"])["pulled"]
    finally:
        there.close()
        shutil.rmtree(other)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("expect: status == 200", "expect: exit(1)"), "kept-invalid"),
        (("relive_kept: 1", "relive_kept: 2"), "kept-invalid"),
        (("request: ", "asks: "), "kept-invalid"),
        (("commit: ", "commit: f00"), "ref-unknown"),
        (("- at: /", "- at: /elsewhere/"), "kept-invalid"),
        (("request: ", "request: 9"), "request-unknown"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_and_leaves_nothing(shop, tmp_path, change, code):
    made = shop.keep(tmp_path, "--name", "edited", "--force")
    before = shop.traces()
    text = Path(made["file"]).read_text()
    assert change[0] in text
    Path(made["file"]).write_text(text.replace(*change))
    with pytest.raises(Refused) as refused:
        shop.relive("kept", made["file"])
    assert refused.value.code == code
    assert shop.traces() == before


def test_what_cannot_be_kept_is_refused(shop, tmp_path):
    with pytest.raises(Refused, match="no expectation"):
        shop.relive("keep", shop.incident, "--expect", "__import__('os')", "-o", str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot be written"):
        shop.keep(tmp_path / "file", "--name", "nowhere")
    assert "kept-nowhere" not in [one["tag"] for one in shop.relive("tag")]
    (tmp_path / "file").unlink()
    with pytest.raises(Refused) as refused:
        shop.relive("keep", "4711", "--expect", "status == 200", "-o", str(tmp_path))
    assert refused.value.code == "incident-unknown"
    assert list(tmp_path.iterdir()) == []


def patch_of(shop: Shop, place: Path, name: str, before: str, after: str) -> str:
    """The path of a patch of the source."""
    assert before in shop.text
    lines = difflib.unified_diff(
        shop.text.splitlines(True),
        shop.text.replace(before, after).splitlines(True),
        "a/poisoned.py",
        "b/poisoned.py",
    )
    (place / name).write_text("".join(lines))
    return str(place / name)


def test_fixes_are_told_apart_beside_the_unchanged_code(shop, tmp_path):
    """One that works, one that fails otherwise and breaks neighbours, one that does not apply, another state: a row each."""
    before = shop.traces()
    good = patch_of(shop, tmp_path, "good.patch", BROKEN, FIXED)
    bad = patch_of(shop, tmp_path, "bad.patch", BROKEN, "return PRICES.get(item).price")
    unfit = tmp_path / "unfit.patch"
    unfit.write_text(Path(good).read_text().replace("PRICES", "PRISES"))
    words = ["--fix", good, "--fix", bad, "--fix", str(unfit), "--fix", "none", "--around", "3"]
    words += ["--set", HEALED]
    done = shop.relive.say("try", shop.incident, *words, *FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["commit"], told["failed"], told["ran"], told["noise"]) == (shop.commit, 2, 2, [])
    fixes = {one["name"]: one for one in told["fixes"]}
    assert list(fixes) == ["none", good, bad, str(unfit), HEALED]
    results = {name: [run["result"] for run in one["runs"]] for name, one in fixes.items()}
    assert results == {
        "none": ["fails the same"] * 2,
        good: ["no failure"],
        bad: ["fails otherwise"],
        str(unfit): [],
        HEALED: ["no failure"],
    }
    assert fixes[good]["swapped"]["swapped"] == ["poisoned.py: Shop.price"]
    assert fixes[good]["runs"][0]["status"] == 200 and fixes[good]["breaks"] == []
    assert fixes[good]["neighbours"] >= 2 and fixes[good]["more_runs"] == 2
    assert [one["asked"] for one in fixes[bad]["breaks"]] == ["GET /price/milk"]
    assert fixes[bad]["still_there"] == 1.0
    assert "does not apply" in fixes[str(unfit)]["refused"]
    assert shop.traces() == before
    assert shop.source.read_text() == shop.text, "the host's file is as it was"


def test_a_fix_that_comes_too_late_for_the_state_is_told_so_and_tried_from_an_earlier_commit(shop, tmp_path):
    """Code that takes no bad price is right, and no price that was taken before becomes better by it."""
    broken, fixed = "int(value) if value.isdigit() else None", "int(value) if value.isdigit() else 3"
    prevents = patch_of(shop, tmp_path, "prevents.patch", broken, fixed)
    done = shop.relive.say("try", shop.incident, "--fix", prevents, *FAST)
    told = json.loads(done.stdout)
    assert (done.returncode, told["fixes"][1]["runs"][0]["result"]) == (1, "fails the same")
    assert f"`relive try {shop.incident} --commit REF`" in told["hint"]
    first = min(shop.relive.commits("shop"), key=lambda one: one["taken_wall_ns"])["id"]
    told = shop.relive("try", shop.incident, "--fix", prevents, "--commit", first, *FAST)
    assert (told["commit"], told["hint"], told["failed"], told["ran"]) == (first, None, 2, 2)
    assert told["fixes"][1]["runs"][0]["result"] == "no failure"


@pytest.mark.parametrize("kind", ["unfit", "elsewhere", "syntax", "nothing"])
def test_the_only_patch_that_cannot_be_tried_is_an_error_and_leaves_nothing(shop, tmp_path, kind):
    before = shop.traces()
    made = Path(patch_of(shop, tmp_path, "made.patch", BROKEN, "return (" if kind == "syntax" else FIXED))
    text = made.read_text()
    if kind == "unfit":
        text = text.replace("PRICES", "PRISES")
    elif kind == "elsewhere":
        text = text.replace("poisoned.py", "another.py")
    elif kind == "nothing":
        text = "nothing\n"
    made.write_text(text)
    with pytest.raises(Refused) as refused:
        shop.relive("try", shop.incident, "--fix", str(made), *FAST)
    assert refused.value.code == "patch-unfit" and refused.value.cause
    assert shop.traces() == before


def test_an_environment_and_a_tree_are_tried_in_fresh_processes(shop):
    """The state is not in them, so that it does not fail there at all: the row of the plain fresh start says so."""
    before = shop.traces()
    done = shop.relive.say("try", shop.incident, "--env", "MODE=other", "--tree", ".", *FAST)
    told = json.loads(done.stdout)
    names = [one["name"] for one in told["fixes"]]
    assert names == ["none", "fresh start", "fresh start, MODE", "fresh start, tree ."]
    assert [run["result"] for one in told["fixes"][1:] for run in one["runs"]] == ["no failure"] * 3
    assert shop.traces() == before
