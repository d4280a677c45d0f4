"""What is told of a watch that sees less than it could."""

from __future__ import annotations

import pytest

from relive.operations.watching import not_seen
from relive.watching.state import read_state


@pytest.mark.parametrize(
    ("driver", "engine", "told"),
    [
        ("journald", "podman", None),
        ("none", "podman", "the log driver none"),
        ("none", "docker", "the log driver none"),
        ("none", "pid", "--log FILE"),
    ],
)
def test_output_that_is_not_kept_is_told(driver: str, engine: str, told: str | None) -> None:
    state = read_state(
        {
            "Id": "1f",
            "Name": "web",
            "Image": "shop",
            "Path": "/bin/shop",
            "Config": {"Env": ["RELIVE_RECORDER={}"]},
            "State": {"Status": "exited", "Pid": 0, "StartedAt": "", "ExitCode": 0},
            "HostConfig": {"LogConfig": {"Type": driver}},
        },
        "podman",
    )
    found = not_seen(state, engine)
    assert len(found) == (told is not None)
    assert all(told in sentence for sentence in found if told)
