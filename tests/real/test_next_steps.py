"""What ``relive show`` names as the next commands, typed as it is printed, answers: of each kind of incident."""

from __future__ import annotations

import json
import shlex
import shutil
import socket

import pytest

from support.waiting import LIMIT

from .harness import Relive
from .test_failures import start


@pytest.mark.parametrize(
    ("path", "kind", "named"),
    [
        ("/price", "answer", ["replay", "reproduce", "why"]),
        ("/hang-python", "hang", ["debug", "replay", "reproduce"]),
        ("/exit", "exit", ["replay", "reproduce"]),
        ("/segv", "signal", ["debug", "replay", "reproduce"]),
    ],
)
def test_each_command_that_is_named_answers(relive: Relive, path: str, kind: str, named: list[str]) -> None:
    service = start(relive, "--hang-after", "1")
    service.ask("/poison")
    with socket.create_connection(("127.0.0.1", service.outer), LIMIT) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
        number = service.incident(kind)["number"]
    commands = [one["command"] for one in relive("show", str(number))["next_steps"]]
    assert [str(one).split()[1] for one in commands] == named
    for command in commands:
        _, *words = shlex.split(command)
        if words[0] == "why":
            words += ["--times", "1", "--most", "4"]  # as long as it likes it would take a while
        if words[0] == "debug" and kind == "signal" and shutil.which("gdb") is None:
            continue
        done = relive.say(*words)
        told = json.loads(done.stdout)
        assert done.returncode in (0, 1, 10) and "error" not in told, (command, told, done.stderr)
        if words[0] == "debug" and kind == "signal":
            innermost = told["output"].split("#0 ")[1].splitlines()[0]
            assert "strlen" in innermost, "gdb stands where the signal struck, not in the first thread"
            assert told["ended"] is None
            went_on = relive(*words, "-c", "continue")
            assert went_on["ended"] == {"exit_status": None, "signal": 11, "as_recorded": True}
