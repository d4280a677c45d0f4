"""Which variables a fresh process gets."""

from __future__ import annotations

import json

import pytest

from relive.config import Settings
from relive.errors import UsageError
from relive.replay.fresh.environment import environment_for, parse_variable, read_variables

from .cases import LAUNCH

ANSWERS = ("1.jsonl", "2.jsonl")
HERE = "/run/relive/inprocess"


def made(recorded, supplied=None, launch=LAUNCH):
    return environment_for(recorded, launch, Settings(), supplied or {}, ANSWERS)


def test_it_is_the_recorded_one_with_the_recorder_first_and_placeholders_told():
    recorded = {"HOME": "/srv", "PYTHONPATH": f"{HERE}:/srv/lib", "TOKEN": "<secret:0123abcd>", "X": "1"}
    environment = made({**recorded, "DATABASE_URL": "pg://a:<secret:0123abcd>@b"}, {"X": "2"})
    variables = environment.variables
    assert (variables["HOME"], variables["X"]) == ("/srv", "2")
    assert variables["PYTHONPATH"] == f"{HERE}:/srv/lib"
    assert environment.placeholders == ["DATABASE_URL", "TOKEN"]
    assert environment.notes == []


def test_what_is_supplied_is_no_placeholder_any_more():
    environment = made({"TOKEN": "<secret:0123abcd>"}, {"TOKEN": "real"})
    assert (environment.placeholders, environment.variables["TOKEN"]) == ([], "real")


def test_the_recorder_describes_calls_as_it_did_and_plays():
    launch = LAUNCH.model_copy(update={"inline_limit": 5, "secret_names": ["pin"]})
    options = json.loads(made({"RELIVE_RECORDER": "{"}, launch=launch).variables["RELIVE_RECORDER"])
    assert (options["inline_bytes"], options["secret_names"], options["answers"]) == (
        5,
        ["pin"],
        list(ANSWERS),
    )
    assert json.loads(made({}, launch=None).variables["RELIVE_RECORDER"])["inline_bytes"] == 64 << 10


def test_what_was_cut_or_lost_is_said():
    assert "LONG" in made({"LONG": "x" * 1000}).notes[0]
    empty = made({})
    assert "no environment" in empty.notes[0]
    assert "/usr/bin" in empty.variables["PATH"]


def test_names_that_are_none_are_left_out():
    assert "A=B" not in made({"A=B": "c", "": "d"}).variables


def test_variables_are_read_from_words_and_files(tmp_path):
    assert parse_variable("A=b=c") == ("A", "b=c")
    file = tmp_path / "env"
    file.write_text("# words\n\nA=1\nB=two words\n")
    assert read_variables(file) == {"A": "1", "B": "two words"}
    for text in ("A", "=b"):
        with pytest.raises(UsageError):
            parse_variable(text)
    with pytest.raises(UsageError):
        read_variables(tmp_path / "gone")
