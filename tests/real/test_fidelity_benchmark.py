"""``benchmarks/fidelity.py`` still measures what it says, and each service of its corpus declares what it must."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from relive.model.incident import FailureKind
from relive.model.outcome import VerdictKind

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
_LIMIT = 270.0  # [s] for a row, also on a machine that is busy
DECLARED = sorted((BENCHMARKS / "corpus").glob("*/service.toml"))


def test_the_corpus_is_of_many_services_and_languages() -> None:
    assert len(DECLARED) >= 30
    assert len({tomllib.loads(place.read_text())["language"] for place in DECLARED}) >= 11


@pytest.mark.parametrize("place", DECLARED, ids=lambda place: place.parent.name)
def test_a_service_declares_how_it_fails(place: Path) -> None:
    declared = tomllib.loads(place.read_text())
    assert declared["kind"] in {kind.value for kind in FailureKind}
    assert declared.get("best", "reproduced") in {kind.value for kind in VerdictKind}
    assert declared["healthy"] and declared["poison"] and declared["fail"]
    named = [word for word in declared["command"] if word.startswith(("{here}/", "{corpus}/"))]
    for word in named:
        assert Path(word.format(here=place.parent, corpus=place.parent.parent)).exists()


def test_a_service_whose_language_is_not_installed_is_left_out_with_the_reason() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "fidelity.py"), "--only", "basket-php,shelf-go", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
        env=dict(os.environ, PATH=""),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == []
    assert told["summary"]["left out"] == {
        "basket-php": "php is not installed",
        "shelf-go": "go is not installed",
    }


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "program", "twin"),
    [("basket-php", "php", "diverged"), ("stock-ruby", "ruby", "diverged"), ("shelf-go", "go", "diverged")],
)
def test_a_language_that_need_not_be_installed(name: str, program: str, twin: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    options = ["--only", name, "--rates", "request", "--replays", "0", "--others", "twin", "--json"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "fidelity.py"), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["fresh"], row["request"], row["twin"], row["incidents"]) == (
        "well",
        "reproduced",
        twin,
        1,
    ), row


@pytest.mark.real
def test_a_failure_comes_back_and_an_aborts_twin_is_not_taken_for_it() -> None:
    options = ["--only", "abort-c", "--rates", "request", "--replays", "2", "--others", "twin", "--json"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "fidelity.py"), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["fresh"], row["request"], row["replays"]) == ("well", "reproduced", "2 of 2"), row
    assert row["twin"] == "same-answer", row
