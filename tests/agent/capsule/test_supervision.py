"""What a supervisor gives, by the variables it sets."""

from __future__ import annotations

import pytest

from relive.agent.capsule.supervision import read_supervision

UNIT = {"SYSTEMD_EXEC_PID": "40", "NOTIFY_SOCKET": "/run/systemd/notify", "PATH": "/bin"}


def test_a_units_main_process_stands_for_the_service_and_its_children_do_not():
    found = read_supervision(UNIT, 40, wanted=None)
    assert found.is_unit and found.is_supervised and found.notify == "/run/systemd/notify"
    assert found.environment["NOTIFY_SOCKET"] == "/run/relive/io/notify"
    assert found.own_pid == ["SYSTEMD_EXEC_PID"]
    child = read_supervision(UNIT, 41, wanted=None)
    assert not child.is_unit and not child.is_supervised


def test_listening_sockets_are_handed_on_to_whom_they_are_meant_for():
    given = {**UNIT, "LISTEN_PID": "40", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
    found = read_supervision(given, 40, wanted=None)
    assert found.sockets == 2 and found.environment["LISTEN_FDNAMES"] == "a:b"
    assert found.own_pid == ["LISTEN_PID", "SYSTEMD_EXEC_PID"]
    others = read_supervision(given, 41, wanted=None)
    assert others.sockets == 0 and not any(name.startswith("LISTEN_") for name in others.environment)


@pytest.mark.parametrize("number", ["-1", "x", "", "\u0663"])
def test_a_number_of_sockets_that_is_none_means_none(number):
    given = {"LISTEN_PID": "40", "LISTEN_FDS": number}
    assert read_supervision(given, 40, wanted=None).sockets == 0


def test_supervisord_and_process_1_are_seen_and_the_user_has_the_last_word():
    assert read_supervision({"SUPERVISOR_PROCESS_NAME": "web"}, 40, wanted=None).is_supervised
    assert read_supervision({}, 1, wanted=None).is_supervised
    assert not read_supervision({}, 40, wanted=None).is_supervised
    assert read_supervision({}, 40, wanted=True).is_supervised
    apart = read_supervision(UNIT, 40, wanted=False)
    assert not apart.is_supervised and apart.has_supervisor  # it lives on, and is found by the next start
