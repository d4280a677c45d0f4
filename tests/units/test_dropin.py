"""The drop-in, decided from a unit's words; that systemd takes it so is in tests/real/test_systemd.py."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path

import pytest

from relive.errors import UnitUnfit, UsageError
from relive.units.dropin import DropInOptions, capsule_name, drop_in, is_untouched, remarks
from relive.units.unitfile import read_service

WANTED = DropInOptions(Path("/opt/relive/bin/relive"), {}, "shop", ["--every", "30s"], False, {})


def made(service: str, loaded: dict[str, str] | None = None, wanted: DropInOptions = WANTED) -> list[str]:
    text = drop_in("shop.service", read_service([f"[Service]\n{service}\n"]), loaded or {}, wanted)
    assert is_untouched(text)
    return text.splitlines()


def test_the_command_stays_as_it_is_written():
    lines = made("Type=notify\nExecStart=/usr/bin/shop \"$GREETING\" '%i' $$x\nKillMode=mixed")
    assert lines[2:] == [
        "[Service]",
        "SyslogIdentifier=shop",
        "ExecStart=",
        "ExecStart=+/opt/relive/bin/relive run --name shop --every 30s -- /usr/bin/shop \"$GREETING\" '%i' $$x",
    ]


def test_each_process_is_told_to_end_where_systemd_did_it_and_exec_stays_exec():
    lines = made("Type=exec\nExecStart=-/bin/a\nSyslogIdentifier=mine\nNotifyAccess=all\nKillSignal=SIGQUIT")
    assert lines[3:6] == ["Type=notify", "NotifyAccess=main", "KillMode=mixed"]
    assert lines[-1] == (
        "ExecStart=-+/opt/relive/bin/relive run --name shop --every 30s --ready started --signal-all SIGQUIT -- /bin/a"
    )


def test_the_user_and_the_limits_are_relives_affair():
    loaded = {"User": "nobody", "Group": "", "LimitNOFILE": "524288", "LimitNOFILESoft": "1024"}
    loaded |= {"LimitCPU": "infinity", "LimitCPUSoft": "infinity", "LimitAS": "7", "LimitASSoft": "7"}
    wanted = DropInOptions(
        Path("/r"), {}, "n", [], False, {"cpu": ("infinity", "infinity"), "as": ("8", "8")}
    )
    assert made("ExecStart=/bin/a", loaded, wanted)[-1] == (
        "ExecStart=+/r run --name n --signal-all TERM --limit as=7:7 --limit nofile=1024:524288 --user nobody -- /bin/a"
    )
    assert "--user" not in made("ExecStart=+/bin/a", loaded, wanted)[-1], "it was root all along"
    assert "--user" not in made("ExecStart=/bin/a", {"User": "0"}, wanted)[-1]


def test_words_that_systemd_would_read_are_quoted():
    wanted = DropInOptions(Path("/a dir/re%live"), {"RELIVE_HOME": '/a "b" $c'}, "n", [], False, {})
    lines = made("ExecStart=/bin/a\nKillMode=mixed", wanted=wanted)
    assert lines[3] == 'Environment="RELIVE_HOME=/a \\"b\\" $$c"'
    assert lines[-1].startswith('ExecStart=+"/a dir/re%%live" run')


def test_only_kill_may_signal_relive_as_root():
    service = (
        "ExecStart=/bin/a\nKillMode=mixed\nExecReload=-/bin/kill -HUP $MAINPID\nExecStop=/srv/stop $MAINPID"
    )
    lines = made(service, {"User": "nobody"})
    assert lines[4:6] == ["ExecReload=", "ExecReload=-+/bin/kill -HUP $MAINPID"]
    assert not any(line.startswith("ExecStop") for line in lines)
    assert len(made(service)) == len(lines) - 2, "a service of root's needs none of it"
    assert [line.split()[0] for line in remarks(read_service(["[Service]\n" + service]))] == ["ExecStop="]


@pytest.mark.parametrize(
    ("service", "word"),
    [
        ("Type=forking\nExecStart=/bin/a", "Type=forking"),
        ("Type=oneshot\nExecStart=/bin/a", "Type=oneshot"),
        ("BusName=a.b\nExecStart=/bin/a", "Type=dbus"),
        ("ExecStart=/bin/a\nExecStart=/bin/b", "2 ExecStart="),
        ("ExecStart=/bin/a ; /bin/b", "more than one command"),
        ("ExecStart=@/bin/a b", "prefix '@'"),
        ("ExecStart=!!/bin/a", "prefix '!'"),
        ("ExecStart=/opt/bin/relive run -- a", "itself already"),
        ("ExecStart=/bin/a\nDynamicUser=yes", "DynamicUser=yes"),
        ("ExecStart=/bin/a\nAmbientCapabilities=CAP_NET_RAW", "AmbientCapabilities"),
        ("ExecStart=/bin/a\nPrivateNetwork=1", "PrivateNetwork=1"),
        ("ExecStart=/bin/a\nStandardInput=socket", "StandardInput=socket"),
        ("ExecStart=/bin/a\nKillMode=process", "KillMode=process"),
        (
            "ExecStart=/bin/a\nPrivateTmp=yes\nSystemCallFilter=@system-service",
            "PrivateTmp=yes, SystemCallFilter=",
        ),
        ("Type=notify", "0 ExecStart="),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(service, word):
    with pytest.raises(UnitUnfit, match=word.replace("(", "\\(")):
        made(service)


def test_a_confined_service_is_taken_where_the_user_says_so_and_told():
    service = "ExecStart=/bin/a\nPrivateTmp=yes\nExecStop=/bin/stop\nPIDFile=/run/a.pid\nExecReload=kill -HUP $MAINPID"
    made(service, wanted=DropInOptions(Path("/r"), {}, "n", [], True, {}))
    said = remarks(read_service([f"[Service]\n{service}"]))
    assert [sentence.split()[0] for sentence in said] == ["These", "ExecStop=", "PIDFile="]


def test_a_group_of_another_than_the_user_is_refused():
    user = pwd.getpwnam("nobody")
    other = next(group for group in grp.getgrall() if group.gr_gid != user.pw_gid)
    with pytest.raises(UnitUnfit, match="Group="):
        made("ExecStart=/bin/a", {"User": "nobody", "Group": other.gr_name})
    with pytest.raises(UnitUnfit, match="SupplementaryGroups="):
        made("ExecStart=/bin/a", {"User": "nobody", "SupplementaryGroups": other.gr_name})
    with pytest.raises(UnitUnfit, match="has not"):
        made("ExecStart=/bin/a", {"User": "nobody-of-this-name"})
    made("ExecStart=/bin/a", {"User": "nobody", "Group": grp.getgrgid(user.pw_gid).gr_name})


def test_an_edited_one_is_known():
    text = "\n".join(made("ExecStart=/bin/a")) + "\n"
    assert is_untouched(text)
    assert not is_untouched(text + "Nice=3\n")
    assert not is_untouched("[Service]\nNice=3\n")


def test_the_capsule_is_called_as_the_unit():
    assert capsule_name("shop.service") == "shop"
    assert capsule_name("shop@a\\x2db.service") == "shop-a-x2db"
    with pytest.raises(UsageError):
        capsule_name("@.service")
