"""What `systemctl show` says of a unit that does not run."""

from __future__ import annotations

import pytest

from relive.errors import TargetUnknown
from relive.watching.processes.unit import read_unit

ENDED = {
    "Id": "web.service",
    "LoadState": "loaded",
    "ActiveState": "failed",
    "MainPID": "0",
    "NRestarts": "2",
    "Result": "signal",
}


@pytest.mark.parametrize(
    ("shown", "exit_code", "stopped"),
    [
        ({"ExecMainCode": "1", "ExecMainStatus": "7"}, 7, False),
        ({"ExecMainCode": "2", "ExecMainStatus": "9"}, 137, False),
        ({"ExecMainCode": "3", "ExecMainStatus": "11"}, 139, False),
        ({"ExecMainCode": "0", "ExecMainStatus": "0"}, None, False),
        (
            {"ExecMainCode": "1", "ExecMainStatus": "0", "ActiveState": "inactive", "Result": "success"},
            0,
            True,
        ),
    ],
)
def test_its_end_is_read_as_a_shell_shows_it(shown, exit_code, stopped):
    state = read_unit(ENDED | shown)
    assert (state.exit_code, state.stopped_by_user) == (exit_code, stopped)
    assert (state.name, state.target, state.restarts) == ("web", "unit:web.service", 2)
    assert not state.is_running and not state.is_final


def test_a_unit_that_is_not_there_is_not_known():
    with pytest.raises(TargetUnknown):
        read_unit({"Id": "nobody.service", "LoadState": "not-found"})
