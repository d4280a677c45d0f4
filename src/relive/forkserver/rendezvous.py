"""Where a fork server listens: a socket whose name says all that its children must have in common with who asks for them.

That is the user, the interpreter and its environment's modules, where Relive lies, the variables that are read when an interpreter
starts, and the fixed ``attributes``: namespaces, capabilities. Who differs in one of these looks for another name, and finds
another server or none. Whether its modules are still those on disk a server finds out itself, for each child.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from relive.forkserver.attributes import fixed_attributes
from relive.kernel.heap import FEW_ARENAS

__all__ = ["PLACE_OF_ROOT", "connect", "meeting_place", "peer_user", "started_with"]

_NAME = "relive-fork-server"
PLACE_OF_ROOT = Path("/run") / _NAME
"""Directory of the sockets and locks of root's servers."""
# What libraries and the interpreter read once, before any of our code runs.
_EARLY = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "OPENSSL_", "LC_"),
    *("CRYPTOGRAPHY_", "PYDANTIC_", "TYPER_", "_TYPER_"),
)
_EARLY_NAMES = {"LANG", "LANGUAGE"}
# numpy starts some when it is imported, and a fork would not take them along.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def started_with(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server is started with: those that count when an interpreter starts, and no other, so no secret."""
    chosen = {
        name: value for name, value in environment.items() if name.startswith(_EARLY) or name in _EARLY_NAMES
    }
    return FEW_ARENAS | chosen | _NO_THREADS


def meeting_place(environment: Mapping[str, str]) -> Path:
    """The socket of the server for a process that is to start with this environment, from here; its directory is there, and ours.

    Raises:
        OSError: there can be none, such as without /proc, or where the directory is somebody else's.
    """
    program = os.stat("/proc/self/exe")
    common = {
        "interpreter": [
            sys.executable,
            sys.prefix,
            sys.hexversion,
            program.st_dev,
            program.st_ino,
            program.st_ctime_ns,
        ],
        "relive": str(Path(__file__).parent.parent),
        "environment": started_with(environment),
        "attributes": fixed_attributes(),
    }
    name = hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:32]
    return _directory() / name


def _directory() -> Path:
    user = os.geteuid()
    directory = PLACE_OF_ROOT if user == 0 else Path(f"/run/user/{user}") / _NAME
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != user or facts.st_mode & 0o077:
        raise PermissionError(f"{directory} is not ours alone")
    return directory


def connect(place: Path) -> socket.socket | None:
    """A connection to the server that listens there; None where none does, or who does is another user."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.setblocking(False)  # where too many wait already it is not waited with them
        connection.connect(str(place))
        if peer_user(connection) == os.geteuid():
            return connection
    except OSError:
        pass
    connection.close()
    return None


def peer_user(connection: socket.socket) -> int:
    """The effective user of the process at the other end when it connected, or listened (SO_PEERCRED, unix(7))."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
