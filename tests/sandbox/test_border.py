"""The rules of a capsule's border: they go as they came, and a host that cannot have them is told why."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernel.helpers import needs_root
from relive.errors import HostIncapable, ToolMissing
from relive.proxies.marks import ENTRANCE, NUMBERS, Mark
from relive.sandbox import border
from relive.sandbox.border import raise_border, removal, remove_border, rules

pytestmark = needs_root
_FOREIGN = "*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n"


def _entrance(number: int) -> str:
    return f"127.82.70.{number}"  # no capsule's


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Numbers of this test alone; nothing is made on this host. Yields where they are held."""
    held = tmp_path / "held"
    monkeypatch.setattr(border, "_HELD", held)
    count = itertools.count()
    monkeypatch.setattr(border, "_make_group", lambda number: tmp_path / f"group-{number}-{next(count)}")
    monkeypatch.setattr(border, "_GONE_WITHIN", 0)
    monkeypatch.setattr(border, "entrance4", _entrance)
    return held


class Programs:
    """In the place of ``ip`` and the others: what they were asked, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.refusals: dict[str, str] = {}
        self.saved = ""

    def __call__(self, command: list[str], *, input: str, **_: object) -> subprocess.CompletedProcess[str]:
        self.asked.append((command[0], input))
        said = next((said for word, said in self.refusals.items() if word in input), "")
        saved = self.saved if command[0].endswith("-save") else ""
        return subprocess.CompletedProcess(command, 1 if said else 0, saved, said)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs()
    monkeypatch.setattr(border.subprocess, "run", found)
    return found


def test_what_is_removed_is_what_was_made_and_nothing_else():
    saved = _FOREIGN.replace(
        "COMMIT",
        ":RELIVE-7 - [0:0]\n-A OUTPUT -m mark --mark 0x52070000/0xffffff00 -j RELIVE-7\n:RELIVE-71 - [0:0]\n"
        "-A RELIVE-7 -j CT --notrack\n-A OUTPUT -m mark --mark 0x52470000/0xffffff00 -j RELIVE-71\nCOMMIT",
    )
    assert removal(7, saved).splitlines() == [
        "*raw",
        "-D OUTPUT -m mark --mark 0x52070000/0xffffff00 -j RELIVE-7",
        "-F RELIVE-7",
        "-X RELIVE-7",
        "COMMIT",
    ]


@pytest.mark.parametrize(("six", "program"), [(False, "iptables"), (True, "ip6tables")])
def test_the_kernel_takes_the_rules_and_gives_them_back(six, program):
    """In a network of its own, beside rules of somebody else."""
    steps = f"""
    {program}-restore <<'end'
{_FOREIGN}end
    {program}-save | grep ^- > before
    {program}-restore --noflush <<'end'
{rules(7, six=six)}end
    {program}-save
    """
    made = _in_a_network(steps)
    assert made.count("-j RELIVE-7\n") == 3 and made.count("-j RELIVE-7-IN\n") == 1
    again = _in_a_network(
        f"{steps}{program}-restore --noflush <<'end'\n{removal(7, made)}end\n{program}-save"
    )
    assert again.removeprefix(made).count("RELIVE") == 0
    assert "-A OUTPUT -p tcp -j ACCEPT" in again.removeprefix(made)


def _in_a_network(script: str) -> str:
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-ec", f"mount -t tmpfs none /mnt; cd /mnt; {script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))  # those say what time it is


def test_each_border_has_a_number_of_its_own_and_gives_it_back(apart, programs):
    """That of somebody who is not seen from here is left out; that of an ended capsule is free."""
    programs.refusals["rule add fwmark 0x52020001"] = "RTNETLINK answers: File exists"
    apart.mkdir()
    taken = apart.parent / "taken"
    taken.mkdir()
    (taken / "cgroup.events").write_text("populated 1\n")
    (apart / "1").write_text(str(taken))
    first = raise_border()
    assert first.number == 3 and (apart / "3").read_text() == first.group
    (taken / "cgroup.events").write_text("populated 0\n")
    assert raise_border().number == 1
    remove_border(first)
    remove_border(first)
    assert os.listdir(apart) == ["1"]


def test_who_removes_a_border_late_leaves_that_of_the_next_capsule_with_its_number(apart, programs):
    ended = raise_border()
    following = raise_border()
    assert ended.number == following.number == 1
    programs.asked.clear()
    remove_border(ended)
    assert programs.asked == [] and (apart / "1").read_text() == following.group


def test_a_number_at_whose_entrance_a_recorder_listens_is_left_alone(apart, programs, monkeypatch):
    """Its file is in another /run: that of a container in this network, say."""
    monkeypatch.setattr(border, "NUMBERS", (200,))
    with (
        socket.create_server((_entrance(200), ENTRANCE)),
        pytest.raises(HostIncapable, match="cannot be made"),
    ):
        raise_border()
    assert programs.asked == []
    assert raise_border().number == 200


def test_a_removal_that_the_host_refuses_hinders_nobody_and_is_made_up_for(apart, programs):
    """An agent that ends has more to remove."""
    facts = raise_border()
    programs.saved = "*raw\n:RELIVE-1 - [0:0]\nCOMMIT\n"
    programs.refusals["-X RELIVE-1"] = "another program holds the lock"
    remove_border(facts)
    programs.refusals.clear()
    assert raise_border().number == 1
    assert any("-X RELIVE-1" in orders for _, orders in programs.asked)


def test_no_mark_has_bits_by_which_others_of_a_host_drop_or_lead():
    for number in NUMBERS:
        for mark in (kind.of(number) for kind in Mark):
            assert mark & 0xFF80 == 0  # Kubernetes, Cilium, Amazon
            assert mark & 0xFF0000 not in (0x40000, 0x80000)  # Tailscale


def test_a_program_that_is_missing_is_named_with_its_package(apart, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolMissing, match="ip is not installed") as caught:
        raise_border()
    assert "apt-get install iproute2" in str(caught.value.remedy)


def test_a_kernel_that_refuses_a_rule_is_named_as_the_cause(apart, programs):
    programs.refusals["TPROXY"] = "iptables-restore: unknown target TPROXY\nmore"
    with pytest.raises(HostIncapable, match="cannot be made") as caught:
        raise_border()
    assert "unknown target TPROXY" in str(caught.value.cause) and "TPROXY" in str(caught.value.remedy)
    assert "rule del" in programs.asked[-2][1] or "rule del" in programs.asked[-4][1]


def test_a_host_that_allows_no_programs_at_groups_is_told_what_they_need(monkeypatch, tmp_path, programs):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(border, "_HELD", tmp_path / "held")
    monkeypatch.setattr(border, "mark_connections", refuse)
    with pytest.raises(HostIncapable, match="cannot be made") as caught:
        raise_border()
    assert "CONFIG_CGROUP_BPF" in str(caught.value.remedy)


_REFUSED = """
import sys
from pathlib import Path
from relive.errors import HostIncapable
from relive.sandbox import border
border._HELD, border.NUMBERS = Path(sys.argv[1]), (203,)
border.rules = lambda *_, **__: "*raw\\n-A OUTPUT -j NOBODY\\nCOMMIT\\n"
before = Path("/proc/self/cgroup").read_text()
try:
    border.raise_border()
except HostIncapable:
    assert Path("/proc/self/cgroup").read_text() == before, "it is where it was"
    print([*Path("/sys/fs/cgroup").glob("**/relive-border-203-*"), *border._HELD.parent.iterdir()])
"""


def test_a_host_that_refuses_the_rules_is_left_as_it_was(tmp_path):
    script = 'ip link set lo up; exec "$@"'
    command = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", _REFUSED]
    command.append(str(tmp_path / "held"))
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout == "[]\n"
