"""A word that a command does not know ends it with 2 before anything is done: each command, as it is declared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

import pytest
import typer.main

from relive.cli.app import application
from relive.operations.operation import Absent
from support.declared import NO_WORD, with_grammar


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands(child, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(application())))


def needed(command: Any) -> list[str]:
    """Words for what it has to be told."""
    return [
        "app.py:1" if one.name == "at" else "1"
        for one in command.params
        if one.param_type_name == "argument" and one.required
    ]


def is_choice(option: Any) -> bool:
    """It takes one word of a few."""
    annotation = option.type_descriptor.annotation
    kinds = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
    return option.param_type_name == "option" and any(issubclass(one, Enum) for one in kinds)


def refused(relive, path: tuple[str, ...], *words: str) -> str | None:
    """None where it is refused as one that cannot be read; else what was said."""
    said = relive(*path, "--json", *words)
    is_error = said.out.startswith("{") and "error" in json.loads(said.out)
    return None if said.status == 2 and is_error else f"{path} {words}: {said}"


def test_an_option_that_there_is_not(relive):
    assert [told for path in COMMANDS if (told := refused(relive, path, "--nosuch"))] == []


def test_a_word_that_is_none_of_the_few_that_there_are(relive):
    wrong, tried = [], 0
    for path, command in COMMANDS.items():
        for one in command.params:
            if is_choice(one):
                tried += 1
                wrong.append(refused(relive, path, one.opts[0], NO_WORD, *needed(command)))
    assert tried > 5
    assert [told for told in wrong if told] == []


def test_a_text_that_its_grammar_does_not_know(relive):
    wrong, tried = [], 0
    for operation, name, _ in with_grammar():
        cli = operation.faces.cli
        for word in () if isinstance(cli, Absent) else cli:
            path = tuple(word.split())
            command = COMMANDS[path]
            option = next((one for one in command.params if one.name == name), None)
            if option is not None and option.param_type_name == "option":
                tried += 1
                wrong.append(refused(relive, path, option.opts[0], NO_WORD, *needed(command)))
    assert tried > 15
    assert [told for told in wrong if told] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_tells_its_errors_in_json(path):
    # They speak a protocol, pass on a service's output, or are for a browser.
    told = {
        "mcp",
        "attach",
        "dashboard",
    }
    options = {word for one in COMMANDS[path].params for word in one.opts}
    assert "--json" in options or path[0] in told


def test_a_patch_that_is_not_there_is_named_with_what_to_give(relive):
    said = relive("try", "1", "--fix", "/nowhere.diff")
    assert said.status == 2 and "--fix: /nowhere.diff cannot be read" in said.err
    assert "Cause: No such file or directory\nRemedy: name a file that `git diff > FILE` made" in said.err
