"""What a capsule's network is made like."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from relive.errors import HostIncapable, ToolMissing
from relive.sandbox import capsule_network
from relive.sandbox.capsule_network import HostNetwork, HostRoute, raise_border, rules

ANSWERS: dict[tuple[str, ...], list[dict[str, Any]]] = {
    ("addr",): [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "scope": "host"}]},
        {
            "ifname": "eth0",
            "addr_info": [
                {"local": "192.0.2.7", "scope": "global"},
                {"local": "192.0.2.8", "scope": "global"},
                {"local": "fe80::1", "scope": "link"},
            ],
        },
    ],
    ("-4", "route", "show", "table", "main"): [
        {"dst": "default", "dev": "eth1", "metric": 200},
        {"dst": "default", "dev": "eth0", "metric": 100},
        {"dst": "192.0.2.0/24", "dev": "eth0", "prefsrc": "192.0.2.8"},
        {"type": "unreachable", "dst": "10.0.0.0/8"},
        {"type": "throw", "dst": "10.9.0.0/16"},
    ],
    ("-6", "route", "show", "table", "main"): [{"dst": "fe80::/64", "dev": "eth0"}],
    ("-4", "rule"): [{}, {}, {}],
    ("-6", "rule"): [{}, {}],
}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    answers = dict(ANSWERS)

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 0, json.dumps(answers[tuple(command[2:])]).encode(), b"")

    monkeypatch.setattr(capsule_network.subprocess, "run", run)
    return answers


def test_routes_are_the_hosts_with_the_own_address_that_the_host_would_use(host):
    found = HostNetwork.read()
    assert found.addresses == ("127.0.0.1", "192.0.2.7", "192.0.2.8")
    assert set(found.routes) == {
        HostRoute(4, "0.0.0.0/0", "unicast", "192.0.2.7"),
        HostRoute(4, "192.0.2.0/24", "unicast", "192.0.2.8"),
        HostRoute(4, "10.0.0.0/8", "unreachable", None),
    }
    assert {route.order for route in found.routes} == {
        "route replace local 0.0.0.0/0 dev lo src 192.0.2.7",
        "route replace local 192.0.2.0/24 dev lo src 192.0.2.8",
        "route replace unreachable 10.0.0.0/8 table local",
    }


def test_where_rules_lead_to_other_tables_every_destination_may_have_a_way(host):
    host["-6", "rule"] = [{}, {}, {}]
    assert HostRoute(6, "::/0", "unicast", None) in HostNetwork.read().routes


def test_a_program_that_is_missing_is_named_with_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolMissing, match="ip is not installed") as caught:
        HostNetwork.read()
    assert "apt-get install iproute2" in str(caught.value.remedy)


def test_a_kernel_that_refuses_a_rule_is_named_as_the_cause(monkeypatch):
    """The rules go to whatever is called iptables-restore."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        said = b"iptables-restore: unknown target TPROXY\nmore" if "restore" in command[0] else b""
        return subprocess.CompletedProcess(command, 2 if said else 0, b"", said)

    monkeypatch.setattr(capsule_network.subprocess, "run", run)
    monkeypatch.setattr(capsule_network.loopback, "bring_up", lambda: None)
    with pytest.raises(HostIncapable, match="cannot be made") as caught:
        raise_border(HostNetwork((), (), ()))
    assert "unknown target TPROXY" in str(caught.value.cause) and "TPROXY" in str(caught.value.remedy)


def test_own_addresses_answer_to_a_ping_and_others_do_not():
    text = rules(["192.0.2.7", "2001:db8::1"], six=False).splitlines()
    own = text.index("-A OUTPUT -d 192.0.2.7 -j ACCEPT")
    ping = next(number for number, line in enumerate(text) if "echo-request" in line)
    assert own < ping and not any("2001:db8" in line for line in text)
