"""Reading units as systemd does (systemd.syntax(7))."""

from __future__ import annotations

import pytest

from relive.units.unitfile import read_command, read_service

SHOP = """\
# a comment
[Unit]
Description = a shop
ExecStart=/not/this/section

[Service]
Type = notify
ExecStart=/usr/bin/shop --port 80 \\
# a comment within
    "two words" \\
    %i
Environment=A=1
Environment=B=[x]=2
PrivateTmp=no
; another
"""


def test_assignments_are_those_of_the_section_with_joined_lines():
    service = read_service([SHOP])
    assert service.last("Type") == "notify"
    assert [" ".join(value.split()) for value in service.all("ExecStart")] == [
        '/usr/bin/shop --port 80 "two words" %i'
    ]
    assert service.all("Environment") == ["A=1", "B=[x]=2"]
    assert service.last("Description") == "" and service.all("Nothing") == []


def test_an_empty_assignment_takes_back_what_was_said_before():
    service = read_service([SHOP, "[Service]\nExecStart=\nExecStart=/bin/other\nType=\n"])
    assert service.all("ExecStart") == ["/bin/other"]
    assert service.last("Type") == "", "which is the default again"


@pytest.mark.parametrize(
    ("text", "is_set"),
    [
        ("PrivateTmp=no", False),
        ("PrivateTmp=", False),
        ("PrivateTmp=yes", True),
        ("ProtectSystem=strict", True),
    ],
)
def test_a_setting_is_set_unless_it_says_no(text, is_set):
    assert read_service([f"[Service]\n{text}\n"]).is_set(text.partition("=")[0]) is is_set


@pytest.mark.parametrize(
    ("value", "prefixes", "program"),
    [
        ("/bin/a b", "", "/bin/a"),
        ("-:+/bin/a", "-:+", "/bin/a"),
        ("@/bin/a name", "@", "/bin/a"),
        ('"/bin/with space" b', "", "/bin/with space"),
        ("", "", ""),
    ],
)
def test_a_command_has_prefixes_and_a_program(value, prefixes, program):
    command = read_command(value)
    assert (command.prefixes, command.program) == (prefixes, program)
    assert command.prefixes + command.words == value
