"""Each command explains itself, and each answers in JSON."""

from __future__ import annotations

import re

import pytest
import typer.main

from relive import __version__
from relive.cli.app import application, application_for


def leaves(command, words=()):
    """Every command that can be run, by the words that run it."""
    children = getattr(command, "commands", {})
    if not children:
        yield " ".join(words), command
    for name, child in children.items():
        yield from leaves(child, (*words, name))


COMMANDS = dict(leaves(typer.main.get_command(application())))

# Commands that do not answer, with the reason.
WITHOUT_JSON = {
    "attach": "its output is the service's own",
    "mcp": "it speaks a protocol",
    "dashboard": "it serves pages",
}


def test_the_commands_are_those_that_are_documented():
    assert set(COMMANDS) == {
        *(
            "check",
            "doctor",
            "health",
            "run",
            "watch",
            "adopt",
            "attach",
            "release",
            "podman-args",
            "commit",
            "serve",
            "mcp",
            "dashboard",
            "delete",
            "debug",
            "try",
            "why",
            "what-if",
            "logpoint",
            "who-wrote",
            "keep",
            "kept",
            "fixture",
            "log",
            "show",
            "inspect",
            "eval",
            "diff",
            "divergence",
            "leaks",
            "bisect",
            "tag",
            "push",
            "pull",
            "export",
            "import",
            "restore",
            "rollback",
            "ps",
            "exec",
            "logs",
            "stop",
            "incidents",
            "replay",
            "reproduce",
            "retain",
            "gc",
            "verify",
            "repair",
            "store stats",
            "key new",
            "key list",
            "key trust",
            "key rotate",
            "key rotate-signing",
            "token create",
            "token list",
            "token revoke",
            "audit verify",
        )
    }


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does(relive, name, option):
    said = relive(*name.split(), option)
    assert said.status == 0
    assert said.err == ""
    assert re.search(rf"Usage: .*\b{name} ", said.out)


@pytest.mark.parametrize("name", COMMANDS)
def test_its_first_line_is_short_and_has_no_full_stop(name):
    first = (COMMANDS[name].help or "").splitlines()[0]
    assert 10 < len(first) <= 100
    assert not first.endswith(".")
    assert first[0].isupper()


def test_the_list_of_commands_says_of_each_what_its_own_help_begins_with():
    """The list imports no command, so it has these lines a second time."""
    whole, listed = (typer.main.get_command(app).commands for app in (application(), application_for(None)))
    assert {name: one.help for name, one in listed.items()} == {
        name: one.help.splitlines()[0] for name, one in whole.items()
    }


def test_a_command_behind_two_dashes_is_run(relive):
    assert relive("--", "ps").err == "Nothing runs.\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_it_answers_in_json_or_has_a_reason_not_to(name):
    command = COMMANDS[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name):
    command = COMMANDS[name]
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []


def test_without_a_command_help_is_shown(relive):
    said = relive()
    assert "Usage: " in said.out + said.err
    assert all(f" {name.split()[0]} " in said.out + said.err for name in COMMANDS)


def test_the_version(relive):
    assert str(relive("--version")) == f"relive {__version__}\n= 0"


@pytest.mark.parametrize(
    "words", [("run", "--evry", "3s", "--", "sleep", "1"), ("exec", "--evry", "b", "--", "ls")]
)
def test_a_misspelt_option_before_the_command_is_not_taken_for_the_command(relive, words):
    said = relive(*words)
    assert said.status == 2
    assert "No such option: --evry" in said.err
