"""A watched container's failure comes back in Relive's own sandbox: the recorded request, sent to the commit before it."""

from __future__ import annotations

import json

from support.waiting import eventually

from .test_watching import podman, service
from .watched import Service

__all__ = ["podman", "service"]


def test_a_failure_in_a_container_is_reproduced_without_its_engine(service: Service) -> None:
    """GIVEN a container committed before a request that failed, WHEN that is replayed, THEN it fails again, alike inside."""
    service.start(inside=True)
    service.watch(every="start")
    eventually(lambda: service.relive.commits(service.name), "the first commit")
    assert service.ask("/price?EUR").startswith("2 ")
    assert service.ask("/price?USD") == "status 500"
    raised = service.incident("exception")
    words = ("replay", f"incident/{raised['number']}")
    done = service.relive.say(*words, environment=service.engine.found_by)
    result = json.loads(done.stdout)
    assert done.returncode == 0, json.dumps(result, indent=1)
    (run,) = result["runs"]
    assert run["verdict"]["kind"] == "reproduced"
    assert run["outcome"]["packets_left"] == 0
    assert run["outcome"]["status"] == 500
