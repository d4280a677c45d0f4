"""What engines tell of a container, in both of their shapes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from relive.errors import HostIncapable
from relive.watching.state import read_state

PODMAN: dict[str, Any] = {
    "Id": "a1" * 32,
    "Name": "web",
    "Image": "9d" * 32,
    "ImageName": "localhost/shop:latest",
    "Path": "/usr/bin/python3",
    "Args": ["-m", "shop"],
    "RestartCount": 2,
    "State": {
        "Status": "running",
        "Pid": 4711,
        "ExitCode": 0,
        "OOMKilled": False,
        "StartedAt": "2026-11-22T02:43:24.121028544Z",
        "Health": {
            "Status": "unhealthy",
            "FailingStreak": 2,
            "Log": [
                {
                    "Start": "x",
                    "End": "2026-11-22T02:44:04.553041724Z",
                    "ExitCode": 1,
                    "Output": "no answer\nat all",
                },
                {"Start": "x", "End": "2026-11-22T02:44:05.5+01:00", "ExitCode": 0, "Output": ""},
            ],
        },
    },
    "Config": {
        "WorkingDir": "/srv",
        "Env": ["PATH=/bin", "RELIVE_RECORDER={}"],
        "Healthcheck": {"Test": ["CMD-SHELL", "true"], "Interval": 2_000_000_000},
    },
    "HostConfig": {"LogConfig": {"Type": "k8s-file"}},
    "NetworkSettings": {
        "Ports": {
            "8000/tcp": [{"HostIp": "", "HostPort": "18080"}, {"HostIp": "::", "HostPort": "18080"}],
            "53/udp": [{"HostIp": "", "HostPort": "53"}],
            "9000/tcp": None,
        }
    },
    "Mounts": [{"Source": "/rings/1", "Destination": "/run/relive/rings"}],
}
# As Docker's API 1.43 answers, where it differs.
DOCKER: dict[str, Any] = {
    "Id": "b2" * 32,
    "Name": "/web",
    "Image": "sha256:9d",
    "Path": "python3",
    "Args": [],
    "State": {
        "Status": "exited",
        "Pid": 0,
        "ExitCode": 137,
        "OOMKilled": True,
        "StartedAt": "2026-11-22T02:43:24.1Z",
    },
    "Config": {"Image": "shop", "WorkingDir": "", "Env": None, "Healthcheck": {"Test": ["NONE"]}},
    "HostConfig": {"LogConfig": {"Type": "json-file"}},
    "NetworkSettings": {"Ports": {}},
    "Mounts": [],
}


def test_podmans_words_are_understood():
    state = read_state(PODMAN, "podman")
    assert (state.name, state.pid, state.restarts, state.is_running) == ("web", 4711, 2, True)
    assert state.command == ["/usr/bin/python3", "-m", "shop"]
    assert (state.image, state.directory, state.logs) == ("localhost/shop:latest", "/srv", "k8s-file")
    assert state.ports == [("127.0.0.1", 18080)]
    assert state.mounts == {"/run/relive/rings": "/rings/1"}
    assert state.has_recorder


def test_the_health_check_says_what_failed_last_and_when_it_ran_last():
    health = read_state(PODMAN, "podman").health
    assert health is not None
    assert (health.status, health.streak, health.said, health.interval) == ("unhealthy", 2, "no answer", 2.0)
    assert health.checked == pytest.approx(1795311845.5)


def test_dockers_words_are_understood():
    state = read_state(DOCKER, "docker")
    assert (state.name, state.image, state.directory) == ("web", "shop", "/")
    assert (state.is_running, state.exit_code, state.oom_killed) == (False, 137, True)
    assert state.health is None
    assert not state.has_recorder


@pytest.mark.parametrize("missing", ["Id", "State", "Config", "Path"])
def test_another_shape_is_refused_with_its_reason(missing):
    facts = copy.deepcopy(PODMAN)
    del facts[missing]
    with pytest.raises(HostIncapable) as caught:
        read_state(facts, "podman")
    assert missing in (caught.value.cause or "")
    assert caught.value.remedy
