"""The border of a capsule whose calls are recorded: rules by which what the service asks of others comes to the recorder first.

How it works, in the network namespace that the service shares with the host:

1. The service's processes are in a control group. A TCP socket of theirs that connects while a recorder listens at the entrance
   gets a mark (``kernel.connectmarks``). What comes in has none, nor has what begins while nobody records: it goes its own way.
2. The first packet of each marked connection waits in a netfilter queue until the recorder has made the real connection or seen it
   fail. A failure is answered by a packet that makes the service's ``connect`` fail with the same error. Otherwise the packet goes
   on, by way of ``lo``, to the recorder's entrance (TPROXY), whose end then has the destination's address; and so do the others of
   that connection. Nothing is translated.
3. UDP sockets are marked as well. Questions to name servers are taken from the queue and sent by the recorder; answers are put in
   with a raw socket. Without a recorder they go their own way.

All of it belongs to one number, which no other capsule of the namespace has. Rules of a capsule that was killed together with its
agent are removed by the next one that gets its number; until then they concern nobody.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from relive.errors import HostIncapable, ReliveError, ToolMissing
from relive.kernel.calltap import make_maps, tap_group
from relive.kernel.connectmarks import mark_connections
from relive.kernel.tapprograms import TapMaps
from relive.model.capsule import BorderFacts
from relive.proxies.marks import ENTRANCE, NAMES, NUMBERS, Mark, entrance4, entrance6, queue_of

__all__ = ["can_tap", "hold_group", "prepare_tap", "raise_border", "raise_tap", "remove_border"]

_HELD = Path("/run/relive-borders")
_TABLES = 0x52450000  # of routes: one for each number
_PRIORITY = 82  # of the rule that leads there
# Where version 2 of control groups is, if it is there.
_TOPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
_GONE_WITHIN = 1.0  # [s] so long what was just killed may still be in a group
_PACKAGES = {"ip": "iproute2", "iptables": "iptables", "ip6tables": "iptables"}
_EXISTS = "File exists"
_TAPPED = "relive-tap-"  # groups whose packets are copied; then when it was made [s, CLOCK_BOOTTIME], "-", and chance
_HELD_BY = "cgroup.procs"  # the file in such a group that agents lock; recorders lock its directory
_AGENT_WITHIN = 60  # [s] after a group was made its agent has it, or never will
_NEEDS = (
    "it needs Linux 5.11 with CONFIG_CGROUP_BPF, control groups of version 2 mounted writable below /sys/fs/cgroup,"
    " and CAP_BPF or CAP_SYS_ADMIN"
)


def raise_border() -> BorderFacts:
    """Have what the caller and its later children ask of others wait for a recorder from now on.

    Raises:
        HostIncapable: the kernel lacks something that this needs, or does not allow it.
        ToolMissing: a program is not installed.
    """
    with _alone() as held:
        for number in NUMBERS:
            file = held / str(number)
            if not _is_free(file, number):
                continue
            group: Path | None = None
            try:
                _remove_rules(number)
                _remove_what_is_left(file)
                if not _lead(number):
                    continue  # a capsule whose file is not seen from here has it
                group = _make_group(number)
                file.write_text(str(group))
                for family in _families():
                    _feed(family, rules(number, six=family == 6))
            except BaseException:
                if group is not None:
                    _leave(group)
                _give_back(file)
                _remove_rules(number)
                raise
            return BorderFacts(number=number, group=str(group))
    raise HostIncapable(
        "the border cannot be made", cause=f"{len(NUMBERS)} capsules of this host have one already"
    )


def prepare_tap() -> TapMaps:
    """What ``raise_tap`` wants; to be called outside of a control group whose memory is limited for the service.

    Raises:
        HostIncapable: as ``raise_tap``.
    """
    try:
        return make_maps()
    except OSError as error:
        raise _no_tap(error) from error


def raise_tap(maps: TapMaps) -> BorderFacts:
    """Have what the caller and its later children ask of others copied from now on (``kernel.calltap``), beside its way.

    The maps are closed.

    Raises:
        HostIncapable: the kernel lacks something that this needs, or does not allow it.
    """
    try:
        with _alone_at(_own_group()) as parent:
            for left in parent.glob(f"{_TAPPED}*"):
                if _is_left_behind(left):
                    with contextlib.suppress(OSError):
                        left.rmdir()
            group = parent / f"{_TAPPED}{_boot_seconds()}-{secrets.token_hex(4)}"
            group.mkdir()
            try:
                tap_group(group, maps)
                (group / "cgroup.procs").write_text("0")
            except OSError:
                group.rmdir()
                raise
    except OSError as error:
        raise _no_tap(error) from error
    finally:
        maps.close()
    return BorderFacts(number=0, group=str(group))


def _is_left_behind(group: Path) -> bool:
    """Its agent was killed together with its capsule. An agent may still have to record what was said before the service ended."""
    made = group.name.removeprefix(_TAPPED).partition("-")[0]
    if made.isdecimal() and _boot_seconds() - int(made) < _AGENT_WITHIN:
        return False
    try:
        with (group / _HELD_BY).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def hold_group(group: Path) -> int:
    """Descriptor by which a group is not removed for being empty, until it is closed; raises OSError."""
    held = os.open(group / _HELD_BY, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def _boot_seconds() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def can_tap() -> bool:
    """This host lets the caller have copied what a group of its own asks of others, as far as is known without making one."""
    try:
        prepare_tap().close()
        return os.access(_own_group(), os.W_OK)
    except (HostIncapable, OSError):
        return False


def _no_tap(error: OSError) -> HostIncapable:
    return HostIncapable(
        "what the service asks of others cannot be recorded beside its way",
        cause=f"copies of what a control group sends: {error}",
        remedy=f"{_NEEDS}; run `relive doctor`, or leave out --record-egress",
    )


@contextlib.contextmanager
def _alone_at(group: Path) -> Iterator[Path]:
    """Nobody else makes a group there within the block."""
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield group
    finally:
        os.close(directory)


def remove_border(border: BorderFacts) -> None:
    """Nobody is left in its group. May be called multiple times.

    What the host refuses to remove goes when the number is given again.
    """
    _remove_group(Path(border.group))
    if not border.number:
        return
    with contextlib.suppress(OSError, ReliveError), _alone() as held:
        file = held / str(border.number)
        if file.read_text() == border.group:
            _remove_rules(border.number)
            _give_back(file)


def rules(number: int, *, six: bool) -> str:
    """The border's rules, for ``iptables-restore``."""
    prefix = "icmp6" if six else "icmp"
    no_network = f"{prefix}-no-route" if six else f"{prefix}-net-unreachable"
    no_host = f"{prefix}-addr-unreachable" if six else f"{prefix}-host-unreachable"
    forbidden = f"{prefix}-adm-prohibited" if six else f"{prefix}-admin-prohibited"
    entrance = entrance6(number) if six else entrance4(number)
    goes, comes = _chains(number)
    queue = queue_of(number)
    marked = {kind: f"-m mark --mark {kind.of(number):#x}" for kind in Mark}
    ours = f"-A OUTPUT -m mark --mark {Mark.ANY.of(number):#x}/0xffffff00 -j {goes}"
    lines = [
        "*raw",
        f":{goes} -",
        ours,
        f"-A {goes} -p udp ! --dport {NAMES} -j RETURN",
        # Without a recorder it goes its own way, known to the host's firewall, which else would drop its answer.
        f"-A {goes} -p udp {marked[Mark.CALL]} -j NFQUEUE --queue-num {queue} --queue-bypass",
        f"-A {goes} -j CT --notrack",  # else the host's own rules could translate the destination
        f"-A {goes} -p tcp --syn {marked[Mark.CALL]} -j NFQUEUE --queue-num {queue}",
        "COMMIT",
        "*mangle",
        f":{goes} -",
        f":{comes} -",
        ours,
        f"-A {goes} -p tcp {marked[Mark.CALL]} -j MARK --set-mark {Mark.RECORDED.of(number):#x}",
        f"-A PREROUTING {marked[Mark.RECORDED]} -j {comes}",
        f"-A {comes} -p tcp --syn -j TPROXY --on-ip {entrance} --on-port {ENTRANCE}",
        "COMMIT",
        "*filter",
        f":{goes} -",
        ours,
        f"-A {goes} -p tcp {marked[Mark.REFUSED]} -j REJECT --reject-with tcp-reset",
        f"-A {goes} {marked[Mark.NO_NETWORK]} -j REJECT --reject-with {no_network}",
        f"-A {goes} {marked[Mark.NO_HOST]} -j REJECT --reject-with {no_host}",
        f"-A {goes} {marked[Mark.FORBIDDEN]} -j REJECT --reject-with {forbidden}",
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def removal(number: int, saved: str) -> str:
    """What takes the rules away again, for ``iptables-restore``; ``saved``: all there are, as ``iptables-save`` tells them."""
    ours = _chains(number)
    lines: list[str] = []
    chains: list[str] = []
    for line in saved.splitlines():
        words = line.split()
        if line.startswith("*"):
            lines.append(line)
            chains = []
        elif line.startswith(":") and words[0][1:] in ours:
            chains.append(words[0][1:])
        elif line.startswith("-A") and words[1] not in ours and words[-1] in ours:
            lines.append(f"-D{line[2:]}")
        elif line == "COMMIT":
            lines += [f"-F {one}" for one in chains] + [f"-X {one}" for one in chains] + [line]
    return "".join(f"{line}\n" for line in lines)


def _chains(number: int) -> tuple[str, str]:
    """Of packets that go out, and of those that have come round to ``lo``."""
    return f"RELIVE-{number}", f"RELIVE-{number}-IN"


def _families() -> tuple[int, ...]:
    return (4, 6) if Path("/proc/net/if_inet6").exists() else (4,)


@contextlib.contextmanager
def _alone() -> Iterator[Path]:
    """Nobody else makes or removes a border within the block. Yields where a file for each number names its group."""
    while True:
        _HELD.mkdir(mode=0o700, exist_ok=True)
        try:
            directory = os.open(_HELD, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            if os.fstat(directory).st_nlink > 0:  # else it was removed while we waited
                yield _HELD
                return
        finally:
            os.close(directory)


def _is_free(file: Path, number: int) -> bool:
    """No process is in the group that the file of a number names, and no recorder is at its entrance.

    Who sees another /run, in the same network namespace, has written its file there.
    """
    try:
        if "populated 1" in (Path(file.read_text()) / "cgroup.events").read_text():
            return False
    except FileNotFoundError:
        pass
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that is closing is nobody
        try:
            sock.bind((entrance4(number), ENTRANCE))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def _remove_what_is_left(file: Path) -> None:
    """The group of one that ended without removing its border."""
    with contextlib.suppress(FileNotFoundError):
        _remove_group(Path(file.read_text()))


def _give_back(file: Path) -> None:
    """A number is free."""
    file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        file.parent.rmdir()  # if it was the last one


def _make_group(number: int) -> Path:
    """Put the caller into a new group, below the one of version 2 which it is in.

    Raises:
        HostIncapable: see ``raise_border``.
    """
    try:
        # Of a name that was never given before: who removes a border late must not remove that of the next one with its number.
        group = _own_group() / f"relive-border-{number}-{secrets.token_hex(4)}"
        group.mkdir()
        try:
            mark_connections(group, Mark.CALL.of(number), (entrance4(number), ENTRANCE))
            (group / "cgroup.procs").write_text("0")
        except OSError:
            group.rmdir()
            raise
    except OSError as error:
        raise HostIncapable(
            "the border cannot be made",
            cause=f"marks for what a control group connects: {error}",
            remedy=f"{_NEEDS}; run `relive doctor`, or leave out --record-egress",
        ) from error
    return group


def _own_group() -> Path:
    """The group of version 2 in which the caller is; of one outside of what it sees of them, the topmost that it sees.

    Raises:
        FileNotFoundError: none are mounted.
    """
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    top = next((top for top in _TOPS if (top / "cgroup.controllers").exists()), None)
    if path is None or top is None:
        raise FileNotFoundError(errno.ENOENT, "no control groups of version 2 are mounted")
    # cgroup_namespaces(7): what lies outside of the namespace begins with "/..".
    return top if ".." in Path(path).parts else top / path.lstrip("/")


def _leave(group: Path) -> None:
    """The caller goes back to where it was."""
    with contextlib.suppress(OSError):
        (group.parent / "cgroup.procs").write_text("0")
    _remove_group(group)


def _remove_group(group: Path) -> None:
    until = time.monotonic() + _GONE_WITHIN
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until:
                return  # who gets its number looks for it again
            time.sleep(0.01)
        else:
            return


def _lead(number: int) -> bool:
    """Lead what is to come to the recorder to ``lo``. False: somebody does already."""
    for family in _families():
        table = _TABLES + number
        orders = f"rule add fwmark {Mark.RECORDED.of(number):#x} lookup {table} pref {_PRIORITY}\n"
        orders += f"route add local default dev lo table {table}\n"
        done = _run(["ip", f"-{family}", "-batch", "-"], orders)
        if done.returncode and _EXISTS in done.stderr:
            return False
        _check(done)
    return True


def _remove_rules(number: int) -> None:
    """What there is of a number; what is not there is no error."""
    table = _TABLES + number
    for family in _families():
        orders = f"rule del fwmark {Mark.RECORDED.of(number):#x} lookup {table}\nroute flush table {table}\n"
        _run(["ip", "-force", f"-{family}", "-batch", "-"], orders)
        orders = removal(number, _run([f"{_tables(family)}-save"], "").stdout)
        if "-X" in orders or "-D" in orders:
            _check(_run([f"{_tables(family)}-restore", "--noflush", "-w", "5"], orders))


def _feed(family: int, orders: str) -> None:
    _check(_run([f"{_tables(family)}-restore", "--noflush", "-w", "5"], orders))


def _tables(family: int) -> str:
    return "iptables" if family == 4 else "ip6tables"


def _run(command: list[str], orders: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=orders, capture_output=True, check=False, text=True)
    except FileNotFoundError as error:
        program = command[0].partition("-")[0]
        raise ToolMissing(
            f"{program} is not installed",
            cause="--record-egress makes the capsule's border with it",
            remedy=f"install the package {_PACKAGES[program]}, for instance with `apt-get install {_PACKAGES[program]}`",
        ) from error


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        said = done.stderr.strip().partition("\n")[0]
        raise HostIncapable(
            "the border cannot be made",
            cause=f"{done.args[0]}: {said}",
            remedy="the kernel needs netfilter with NFQUEUE, TPROXY, CT, MARK and REJECT (modules xt_NFQUEUE, nfnetlink_queue,"
            " xt_TPROXY, xt_CT, xt_mark, ipt_REJECT), and the caller CAP_NET_ADMIN; run `relive doctor`, or leave out"
            " --record-egress",
        )
