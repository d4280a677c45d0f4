"""The error tree keeps its promises: stable codes, exit statuses by family, one shape, pickling."""

from __future__ import annotations

import inspect
import json
import pickle
import re

import pytest

from relive import errors
from relive.errors import ReliveError


def all_kinds() -> list[type[ReliveError]]:
    found: list[type[ReliveError]] = []
    pending = [ReliveError]
    while pending:
        kind = pending.pop()
        found.append(kind)
        pending += kind.__subclasses__()
    return sorted(
        (kind for kind in found if kind.__module__ == "relive.errors"), key=lambda kind: kind.__name__
    )


KINDS = all_kinds()
FAMILIES = ReliveError.__subclasses__()
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def test_all_names_every_class_and_the_one_function():
    defined = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    assert sorted(errors.__all__) == sorted([*defined, "reason_of"])
    assert errors.__all__ == sorted(errors.__all__)


@each_kind
def test_a_code_is_kebab_case_and_its_own(kind):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    assert [other for other in KINDS if other.code == kind.code] == [kind]
    assert "code" in vars(kind)


@each_kind
def test_a_code_follows_from_the_name_of_its_class(kind):
    """So that who reads one finds the other."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
    assert kind.code in (words, words.removesuffix("-error"), "error")


@each_kind
def test_a_kind_has_the_exit_status_of_its_family(kind):
    family = next((family for family in FAMILIES if issubclass(kind, family)), None)
    expected = 70 if family is None else family.exit_status
    assert kind.exit_status == expected


def test_families_have_exit_statuses_of_their_own_that_are_no_verdicts():
    statuses = [family.exit_status for family in FAMILIES]
    assert len(set(statuses)) == len(statuses)
    assert not {0, 1, 10} & set(statuses)


@each_kind
def test_an_error_survives_pickling(kind):
    error = kind("the thing happened", cause="it did", remedy="undo it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.as_json() == error.as_json()
    assert str(copy) == str(error)


@each_kind
def test_its_json_has_one_shape(kind):
    assert kind("a", cause="b", remedy="c").as_json() == {
        "code": kind.code,
        "message": "a",
        "cause": "b",
        "remedy": "c",
    }
    assert kind("a").as_json() == {
        "code": kind.code,
        "message": "a",
        "cause": None,
        "remedy": kind.usual_remedy,
    }


@each_kind
def test_another_process_gets_an_error_of_the_same_class(kind):
    error = kind("a", cause="b", remedy="c")
    arrived = ReliveError.from_json(json.loads(json.dumps(error.as_json())))
    assert type(arrived) is kind
    assert arrived.as_json() == error.as_json()


def test_an_error_with_an_unknown_code_keeps_its_words():
    arrived = ReliveError.from_json({"code": "novel", "message": "new", "cause": None, "remedy": "wait"})
    assert type(arrived) is ReliveError
    assert arrived.args == ("new", None, "wait")


def test_its_text_is_the_message_and_the_cause():
    assert str(ReliveError("it broke")) == "it broke"
    assert str(ReliveError("it broke", cause="worn out", remedy="buy another")) == "it broke: worn out"


@each_kind
def test_every_class_says_what_it_stands_for(kind):
    assert kind.__doc__
    assert kind.__doc__.strip()


def parents_drawn() -> dict[str, str]:
    """The tree of the module's docstring as {class: its parent}."""
    drawn: dict[str, str] = {}
    family = "ReliveError"
    for line in (errors.__doc__ or "").splitlines():
        names = re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\bNotFound\b|\bCancelled\b", line)
        if re.match(r"[├└]", line):
            family = names[0]
            drawn[family] = "ReliveError"
        elif "├" in line or "└" in line:
            drawn.update(dict.fromkeys(names, family))
    return drawn


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in KINDS if kind is not ReliveError}
    assert parents_drawn() == real


def test_the_statuses_in_the_docstring_are_those_of_the_families():
    drawn = dict(re.findall(r"^[├└]── (\w+) .* (\d+)$", errors.__doc__ or "", flags=re.MULTILINE))
    assert {name: int(status) for name, status in drawn.items()} == {
        family.__name__: family.exit_status for family in FAMILIES
    }


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Value error, it is too long", "it is too long"),
        (
            "Invalid value for '--x': Value error, 'y' is not one of 'z'.",
            "Invalid value for '--x': 'y' is not one of 'z'.",
        ),
        ("Input should be greater than 1", "Input should be greater than 1"),
        ("no Value error, at all", "no Value error, at all"),
    ],
)
def test_what_a_check_says_stands_without_pydantics_mark(message: str, reason: str) -> None:
    assert errors.reason_of(message) == reason
