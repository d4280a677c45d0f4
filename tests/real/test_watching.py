"""A container of podman that runs already is watched: what fails in it becomes incidents, and it depends on none of it."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import eventually

from .harness import Refused, Relive
from .watched import IMAGE, Service, WatchedPodman

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def podman(podman_works: None) -> Iterator[WatchedPodman]:
    made = WatchedPodman()
    yield made
    made.close()


@pytest.fixture
def service(relive: Relive, podman: WatchedPodman, request: pytest.FixtureRequest) -> Iterator[Service]:
    """In the host's network, or that of the parameter."""
    network = getattr(request, "param", "host")
    made = Service(podman, relive, f"watched-{next(NUMBERS)}", network=network)
    yield made
    # In this order: a watch that sees its container removed also removes the place of its rings.
    podman.ask("rm", "--force", "--time=0", made.name)
    eventually(lambda: relive("ps") == [], "the watch ends with its container")


@pytest.mark.parametrize("service", ["none"], indirect=True)
def test_failures_inside_are_seen_with_frames_and_committed_before_death(service: Service) -> None:
    """GIVEN a Python container with the recorder and a network of its own, watched; WHEN a request raises, a line matches and the
    process reads address 0; THEN each is an incident with the commit at it, and the next start of the container, which has another
    network, is watched and recorded too.
    """
    service.start("--restart=on-failure:5", inside=True)
    begun = service.watch("--log-pattern", "PANIC", every="start")
    assert begun["inside"] and begun["missing"] == []
    first = eventually(lambda: service.relive.commits(service.name), "the first commit")[-1]["id"]

    assert service.ask("/price?EUR").startswith("2 ")
    assert service.ask("/price?USD") == "status 500"
    raised = service.incident("exception")
    assert raised["sighting"]["summary"].startswith("KeyError: 'USD' in price (watched.py:")
    assert raised["before"] == first and raised["at"] not in (None, first)
    told = service.relive("show", f"incident/{raised['number']}")
    assert [frame["function"] for frame in told["package"]["chain"][0]["frames"]][-1] == "price"
    assert told["package"]["chain"][0]["frames"][-1]["locals"]["currency"] == "'USD'"
    assert {"request-started", "handling-started", "failure"} <= {
        one["kind"] for one in told["timeline"]["rows"]
    }

    replayed = service("replay", str(raised["number"]), "--pace", "fast")
    assert [run["verdict"]["kind"] for run in replayed["runs"]] == ["reproduced"], replayed

    def panicked() -> object:
        service.ask("/say?PANIC")
        return service.incidents("log")

    eventually(panicked, "a line that is not within a second of the exception, whose it would be")
    assert service.incident("log")["at"] is not None
    own = service("commit", service.target)
    assert own["name"] == service.name

    with pytest.raises(OSError):
        service.ask("/null", port=service.port)
    died = service.incident("signal")
    assert "SIGSEGV" in died["sighting"]["summary"]
    assert died["sighting"]["pid"] == 1
    assert died["before"] == own["id"] and died["at"] not in (None, own["id"])
    eventually(lambda: service.ask("/price?EUR").startswith("2 "), "the next start answers")
    eventually(
        lambda: service.relive.commits(service.name)[0]["id"] not in (own["id"], died["at"]), "its commit"
    )
    assert service.incidents("exit") == []
    before = service.recorded()
    assert before["/null"] == 1

    def is_recorded() -> bool:
        return (
            service.ask("/price?EUR").startswith("2 ")
            and service.recorded()["/price?EUR"] > before["/price?EUR"]
        )

    eventually(is_recorded, "a request in its other network is recorded")


def test_the_container_depends_on_neither_agent_nor_watch(service: Service) -> None:
    """WHEN the agent is killed, the next command starts another; WHEN the watch is ended, the container runs on."""
    service.start()
    begun = service.watch()
    assert not begun["inside"]
    assert "podman run $(relive podman-args" in begun["missing"][0]
    with pytest.raises(Refused) as caught:
        service("watch", service.target)
    assert caught.value.code == "capsule-exists"
    first = service.agent()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{first}").exists(), "the agent is gone")
    # By a command of somebody who knows nothing of this podman's storage.
    row = eventually(lambda: [one for one in service.relive("ps") if one["pid"]], "another agent watches")[0]
    assert row["pid"] == service.engine.state(service.name)["Pid"]
    assert service.agent() != first
    eventually(lambda: service.ask("/say"), "the proxy is there")
    assert service("stop", service.target) == {"stopped": [service.target]}
    assert service.relive("ps") == []
    assert service.engine.state(service.name)["Status"] == "running"
    assert service.ask("/say", port=service.port).startswith("said")


@pytest.mark.soak
def test_a_restart_loop_is_told_with_the_commit_before_it(service: Service) -> None:
    """Starts that end at once leave no commit of their own; the one before the first of them is the one to look at."""
    service.start("--restart=on-failure:6")
    service.watch()
    before = service("commit", service.target)["id"]
    service.trigger.touch()
    with pytest.raises(OSError):
        service.ask("/exit?7", port=service.port)
    loop = service.incident("restart-loop")
    assert loop["before"] == before
    eventually(lambda: service.engine.state(service.name)["Status"] == "exited", "podman gives up")
    ended = {one["sighting"]["exit_status"]: one for one in service.incidents("exit")}
    assert ended[7]["before"] == before
    shown = service("show", f"incident/{ended[3]['number']}")
    assert "cannot go on" in shown["log_tail"]


@pytest.mark.soak
def test_a_health_check_that_turns_bad_and_a_lack_of_memory_are_seen(service: Service) -> None:
    """Without systemd nobody runs the check but the watch."""
    check = ["--health-cmd", "test ! -e /var/bad", "--health-interval=1s", "--health-retries=1"]
    service.start(*check, "--memory=64m")
    service.watch()
    (service.trigger.parent / "bad").touch()
    sick = service.incident("unhealthy")
    assert sick["at"] is not None
    with pytest.raises(OSError):
        service.ask("/eat", port=service.port)
    starved = service.incident("out-of-memory")
    assert starved["sighting"]["exit_status"] == 137


@pytest.mark.soak
def test_an_image_of_a_commit_is_loaded_and_restored_by_podman(service: Service, tmp_path: Path) -> None:
    """GIVEN a service that counts its answers; THEN the container that podman makes of the image counts on."""
    service.start()
    service.ask("/say", port=service.port)
    commit = service("commit", service.target)["id"]
    service("export", commit, str(tmp_path / "image.tar"), "--format=oci")
    service.engine.run("rm", "--force", "--time=0", service.name)
    service.engine.run("load", "--quiet", "--input", tmp_path / "image.tar")
    service.engine.run("container", "restore", f"localhost/relive-checkpoint/{service.name}:{commit[:12]}")
    answer = eventually(lambda: service.ask("/say", port=service.port), "it answers again")
    assert int(answer.split()[1]) >= 3
    service.engine.run("image", "rm", "--force", f"localhost/relive-checkpoint/{service.name}:{commit[:12]}")


def test_what_cannot_be_watched_is_refused_with_a_remedy(service: Service) -> None:
    for target, code in (
        ("web", "usage"),
        ("podman:nobody", "target-unknown"),
        ("pid:1", "target-undumpable"),
    ):
        with pytest.raises(Refused) as caught:
            service("watch", target)
        assert caught.value.code == code
        assert caught.value.remedy
    service.engine.run("create", f"--name={service.name}", "--log-driver=none", IMAGE, "/bin/true")
    for options, word in (
        (["--listen", "127.0.0.1:1"], "--upstream"),
        (["--log-pattern", "x"], "--log-driver"),
        (["--log-pattern", "("], "expression"),
        (["--every", "request"], "--listen"),
        (["--upstream", "127.0.0.1:1"], "both"),
    ):
        with pytest.raises(Refused) as caught:
            service("watch", service.target, *options)
        assert word in caught.value.remedy
    assert json.loads(service.relive.say("ps").stdout) == []
