"""What a drop-in has to say so that a unit's service runs under ``relive run``: decided from the unit's own words.

Only ``[Service]`` of one file is written. The program and its arguments are taken over as they are written, so that systemd reads
quotes, variables and specifiers as before. ``relive run`` has to be root, hence the prefix "+", under which systemd applies neither
``User=`` nor any sandboxing to that one command; ``User=`` stays in the unit for its other commands and its directories.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.errors import UnitUnfit
from relive.model.capsule import check_name
from relive.model.limits import KINDS
from relive.units.unitfile import Assignments, ExecStart, read_command

__all__ = ["DropInOptions", "capsule_name", "drop_in", "is_untouched", "remarks"]

# Without these the service would be another one, or not start.
_NEEDED = {
    "AmbientCapabilities": "the service would lack these capabilities",
    "BindPaths": "the service would not find these files",
    "BindReadOnlyPaths": "the service would not find these files",
    "DynamicUser": "its user exists only while systemd itself runs the command as that user",
    "ExtensionDirectories": "the service would not find these files",
    "ExtensionImages": "the service would not find these files",
    "MountImages": "the service would not find these files",
    "NetworkNamespacePath": "the service would be in another network",
    "IPCNamespacePath": "the service would be in another IPC namespace",
    "PAMName": "the service would have no PAM session",
    "PrivateNetwork": "the service would be in another network",
    "RootDirectory": "the service would have another root",
    "RootImage": "the service would have another root",
    "TemporaryFileSystem": "the service would find other files",
}
# Without these it is the same service, less confined.
_CONFINING = (
    "AppArmorProfile",
    "CapabilityBoundingSet",
    "ExecPaths",
    "InaccessiblePaths",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "NoExecPaths",
    "NoNewPrivileges",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateMounts",
    "PrivateTmp",
    "PrivateUsers",
    "ProcSubset",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "RestrictAddressFamilies",
    "RestrictFileSystems",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "SELinuxContext",
    "SecureBits",
    "SmackProcessLabel",
    "SystemCallArchitectures",
    "SystemCallFilter",
)
_KINDS = {
    "dbus": "whether it is ready is seen by the name it takes on the bus, which was not tried under Relive",
    "forking": "its first process ends, and Relive keeps to that one",
    "oneshot": "it is a command that ends, not a service that stays",
}
_SIGNALLING = ("ExecReload", "ExecStop")
_RAISED_BY_SYSTEMD = ("nofile", "memlock")
_MARK = re.compile(
    r"# Written by `relive adopt`, which knows by this number that nobody edited it: ([0-9a-f]{64})\n"
)
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


@dataclass(frozen=True, slots=True)
class DropInOptions:
    """What the user asked for.

    Attributes:
        program: the ``relive`` command; environment: variables it needs.
        options: of ``relive run``, but for those that follow from the unit.
        unconfined: the service may run without the unit's sandboxing.
        systemd_limits: (soft, hard) of systemd's own process by name, as `systemctl show` writes them.
    """

    program: Path
    environment: Mapping[str, str]
    name: str
    options: list[str]
    unconfined: bool
    systemd_limits: Mapping[str, tuple[str, str]]


def capsule_name(unit: str) -> str:
    """What the unit's capsule is called, unless the user says it; raises UsageError."""
    return check_name(re.sub(r"[^A-Za-z0-9._-]+", "-", unit.removesuffix(".service")))


def drop_in(unit: str, service: Assignments, loaded: Mapping[str, str], wanted: DropInOptions) -> str:
    """The text of the drop-in.

    Args:
        service: of the unit's files without this drop-in.
        loaded: ``User``, ``Group`` and ``SupplementaryGroups`` as systemd resolved them.

    Raises:
        UnitUnfit: the service cannot be run so, or only with less confinement than the user agreed to.
    """
    command = _command(unit, service)
    kind = service.last("Type") or ("dbus" if service.last("BusName") else "simple")
    if kind in _KINDS:
        raise UnitUnfit(
            f"{unit} cannot be adopted: it has Type={kind}",
            cause=_KINDS[kind],
            remedy="let the service stay in the foreground, with Type=exec or notify"
            if kind == "forking"
            else None,
        )
    _check_needed(unit, service)
    confined = confining(service)
    if confined and not wanted.unconfined:
        raise UnitUnfit(
            f"{unit} confines its service: {', '.join(confined)}",
            cause="`relive run` has to be root with all rights: systemd applies these neither to it nor to what it starts",
            remedy="--without-confinement, if the service may run without them; `relive release` brings them back",
        )
    lines, options = [], ["--name", wanted.name, *wanted.options]
    lines += [
        f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(wanted.environment.items())
    ]
    if kind == "exec":
        # exec: the unit has started when the program was executed. With notify, that is when `relive run` has executed it.
        lines += ["Type=notify", "NotifyAccess=main"]
        options += ["--ready", "started"]
    elif service.last("NotifyAccess") == "all":
        options += ["--notify-access", "all"]
    match service.last("KillMode") or "control-group":
        case "control-group":
            # Each process of the service is told to end, and none of Relive.
            lines.append("KillMode=mixed")
            options += ["--signal-all", service.last("KillSignal") or "TERM"]
        case "mixed":
            pass
        case other:
            raise UnitUnfit(
                f"{unit} cannot be adopted: it has KillMode={other}",
                cause="processes that outlive their service outlive a capsule as little as a container",
            )
    if not service.last("SyslogIdentifier"):
        lines.append(f"SyslogIdentifier={command.program.rsplit('/', 1)[-1]}")
    options += _limits(service, loaded, wanted.systemd_limits)
    user = _user(unit, loaded) if "+" not in command.prefixes else None
    if user is not None:
        options += ["--user", user]
    prefixes = "".join(sign for sign in "-:" if sign in command.prefixes) + "+"
    words = " ".join(_quoted(word) for word in (str(wanted.program), "run", *options))
    if user is not None:
        lines += _signalling(service)
    body = "\n".join(
        ["[Service]", *lines, "ExecStart=", f"ExecStart={prefixes}{words} -- {command.words}", ""]
    )
    body = f"# `relive release {unit}` removes it. What the unit says otherwise stays.\n{body}"
    return f"# Written by `relive adopt`, which knows by this number that nobody edited it: {_number(body)}\n{body}"


def is_untouched(text: str) -> bool:
    """It is as ``drop_in`` wrote it."""
    found = _MARK.match(text)
    return found is not None and found[1] == _number(text[found.end() :])


def confining(service: Assignments) -> list[str]:
    """Settings of the unit that would not hold."""
    return [f"{name}={service.all(name)[-1]}" for name in _CONFINING if service.is_set(name)]


def remarks(service: Assignments) -> list[str]:
    """What the user is to look at himself, in sentences."""
    found = []
    confined = confining(service)
    if confined:
        found.append(f"These do not hold for the service under Relive: {', '.join(confined)}.")
    for name in _SIGNALLING:
        for value in service.all(name):
            if "MAINPID" not in value:
                found.append(
                    f"{name}= is left alone; a pid file, if it goes by one, has a number of the capsule."
                )
            elif not _is_kill(read_command(value)):
                found.append(
                    f"{name}= is left alone; the user it runs as may not signal `relive run`, which is $MAINPID."
                )
    if service.last("PIDFile"):
        found.append(
            "PIDFile= is left alone: what the service writes there is its number inside the capsule."
        )
    return found


def _command(unit: str, service: Assignments) -> ExecStart:
    commands = service.all("ExecStart")
    if len(commands) != 1:
        raise UnitUnfit(f"{unit} cannot be adopted: it has {len(commands)} ExecStart=, not one")
    command = read_command(commands[0])
    signs = sorted(set(command.prefixes) & set("@!|"))
    if signs:
        raise UnitUnfit(
            f"{unit} cannot be adopted: its ExecStart= has the prefix {''.join(signs)!r}",
            cause="`relive run` cannot start a program so",
        )
    if ";" in command.words.split():
        raise UnitUnfit(f"{unit} cannot be adopted: its ExecStart= holds more than one command")
    if Path(command.program).name == "relive":
        raise UnitUnfit(
            f"{unit} runs `relive` itself already",
            remedy="what it says is yours; adopt changes only units that do not",
        )
    return command


def _check_needed(unit: str, service: Assignments) -> None:
    for name, reason in _NEEDED.items():
        if service.is_set(name):
            raise UnitUnfit(
                f"{unit} cannot be adopted: it has {name}={service.all(name)[-1]}",
                cause=f"systemd does not apply it to `relive run`, which has to be root: {reason}",
                remedy="take it out of the unit, if the service can do without it",
            )
    entry = service.last("StandardInput") or "null"
    if entry != "null":
        raise UnitUnfit(
            f"{unit} cannot be adopted: it has StandardInput={entry}",
            cause="the input of a service in a capsule is /dev/null",
        )


def _signalling(service: Assignments) -> list[str]:
    """A command such as `kill -HUP $MAINPID` runs as the service's user, who may not signal `relive run`: give it the right.

    Only `kill` itself: another program, which that user might change, never becomes root's.
    """
    lines = []
    for name in _SIGNALLING:
        values = service.all(name)
        commands = [read_command(value) for value in values]
        if any(_is_kill(command) for command in commands):
            lines.append(f"{name}=")
            lines += [
                f"{name}={command.prefixes}+{command.words}" if _is_kill(command) else value
                for command, value in zip(commands, values, strict=True)
            ]
    return lines


def _is_kill(command: ExecStart) -> bool:
    return (
        command.program in ("kill", "/bin/kill", "/usr/bin/kill")
        and "MAINPID" in command.words
        and not set(command.prefixes) & set("@+!|")
        and ";" not in command.words.split()
    )


def _limits(
    service: Assignments, loaded: Mapping[str, str], systemds: Mapping[str, tuple[str, str]]
) -> list[str]:
    """With "+" a command has the limits of systemd's own process, which raises some of them for itself."""
    options = []
    for kind in KINDS:
        setting = f"Limit{kind.upper()}"
        soft, hard = loaded.get(f"{setting}Soft", ""), loaded.get(setting, "")
        is_meant = service.last(setting) or kind in _RAISED_BY_SYSTEMD or systemds.get(kind) != (soft, hard)
        if soft and hard and is_meant:
            options += ["--limit", f"{kind}={soft}:{hard}"]
    return options


def _user(unit: str, loaded: Mapping[str, str]) -> str | None:
    """Whom the service runs as; None: root."""
    name, group = loaded.get("User", ""), loaded.get("Group", "")
    try:
        user = pwd.getpwuid(int(name or 0)) if not name or name.isdecimal() else pwd.getpwnam(name)
        gid = user.pw_gid if not group else int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
        others = {grp.getgrnam(one).gr_gid for one in loaded.get("SupplementaryGroups", "").split()}
    except KeyError as error:
        raise UnitUnfit(
            f"{unit} names a user or group that this machine has not", cause=str(error.args[0])
        ) from None
    if gid != user.pw_gid:
        raise UnitUnfit(
            f"{unit} cannot be adopted: Group={group} is not the group of its user {user.pw_name}",
            cause="`relive run --user` starts a service in the user's own groups",
            remedy=f"make it so: usermod -g {group} {user.pw_name}; or take Group= out of the unit",
        )
    if others - set(os.getgrouplist(user.pw_name, user.pw_gid)):
        raise UnitUnfit(
            f"{unit} cannot be adopted: its user {user.pw_name} is not in all of SupplementaryGroups=",
            cause="`relive run --user` starts a service in the user's own groups",
            remedy=f"put the user into them: usermod -a -G GROUP {user.pw_name}",
        )
    return user.pw_name if user.pw_uid != 0 else None


def _quoted(word: str) -> str:
    """As systemd.syntax(7) reads it back."""
    word = word.replace("%", "%%")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$") + '"'


def _number(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
