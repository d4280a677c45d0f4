"""How a service had been started is read back as it was kept, and nothing else is taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import RecordingCorrupt
from relive.model.capsule import CapsuleSpec
from relive.model.commit_policy import parse_every
from relive.model.launch import launch_of, read_launch


def test_it_has_the_settings_of_the_recorder_that_described_the_calls() -> None:
    spec = CapsuleSpec(
        name="shop",
        command=["shop", "\udcff"],
        directory="/srv",
        environment={},
        policy=parse_every("never"),
        upstream=("127.0.0.1", 80),
    )
    settings = Settings(home=Path("/home"), inline_limit=17, secret_names=["pin"])
    launch = read_launch(launch_of(spec, settings).model_dump_json().encode())
    assert (launch.command, launch.directory, launch.address) == (
        ["shop", "\udcff"],
        "/srv",
        ("127.0.0.1", 80),
    )
    assert (launch.inline_limit, launch.ring, launch.secret_names) == (17, settings.ring, ["pin"])


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"version": 2, "command": ["a"], "directory": "/"}', b" " * (5 << 20)]
)
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingCorrupt):
        read_launch(data)
