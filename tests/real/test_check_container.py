"""``relive check`` of a container of podman: what its engine gives it, such as mounts and pipes of its own, is no hindrance."""

from __future__ import annotations

import json

import pytest

from .containers import Pods, relive
from .harness import Refused, Relive

__all__ = ["relive"]


def test_a_container_with_a_web_service(relive: Relive, pods: Pods) -> None:
    pods.serve("web")
    done = relive.say("check", "podman:web")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "whole"), report["findings"]
    commit = relive.commit("podman:web")
    saved = sum(one.size for one in commit.manifest.images if one.name.startswith("pages-"))
    assert report["estimate"]["memory"] + report["estimate"]["shared"] == pytest.approx(saved, rel=0.1)


def test_a_container_that_is_not_there(relive: Relive) -> None:
    with pytest.raises(Refused) as refused:
        relive("check", "podman:nobody")
    assert refused.value.code == "target-unknown"
