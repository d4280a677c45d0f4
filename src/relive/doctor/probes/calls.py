"""What a service asks of others copied beside its way, as ``--egress beside`` records it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext
from relive.errors import ReliveError
from relive.kernel.calltap import find_tap
from relive.model.capsule import BorderFacts
from relive.proxies.egress.tapped import TappedDialogues
from relive.proxies.ingress.options import RELAY
from relive.proxies.relay_writer import RelayWriter
from relive.recording.dialogues import Way, read_dialogues
from relive.recording.reader import Recording
from relive.sandbox.border import prepare_tap, raise_tap, remove_border

__all__ = ["calls"]

_WITHIN = 2.0  # [s]
_SAID = b"a byte of which a copy is taken"


def calls(context: ProbeContext) -> ProbeResult:
    """A process in a control group connects, and what it says is in a recording."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_WITHIN)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = os.fork()
        if child == 0:
            ours.close()
            _be_the_service(theirs, listener.getsockname())
        theirs.close()
        try:
            said = ours.recv(4096).decode()
            if not said.startswith("{"):
                raise Obstacle("it cannot be copied", cause=said or "the process that asks has ended")
            facts = BorderFacts.model_validate_json(said)
            try:
                with listener.accept()[0] as taken:
                    taken.settimeout(_WITHIN)
                    taken.recv(len(_SAID))
                    _look(context, facts)
            finally:
                ours.close()
                os.waitpid(child, 0)
                child = 0
                remove_border(facts)
        finally:
            ours.close()
            if child:
                os.waitpid(child, 0)
    return works("what a process said to another was copied")


def _look(context: ProbeContext, facts: BorderFacts) -> None:
    library, directory = context.settings.tools_path / RELAY, context.directory / "calls"
    try:
        writer = RelayWriter(
            library, directory, keep_bytes=None, keep_seconds=None, on_trouble=lambda _text: None
        )
        tapped = TappedDialogues(writer.relay, find_tap(Path(facts.group)))
    except OSError as error:
        raise Obstacle(
            "copies are made, and cannot be read", cause=str(error), remedy="run `make setup`"
        ) from error
    with contextlib.closing(writer), contextlib.closing(tapped):
        until = time.monotonic() + _WITHIN
        while not (taken := tapped.take()) and time.monotonic() < until:
            time.sleep(0.01)
    if not any(_SAID in one.text(Way.UP) for one in read_dialogues(Recording(directory).events())):
        raise Obstacle(
            "no copy came", cause=f"{taken} bytes were copied, and what was said is not among them"
        )


def _be_the_service(line: socket.socket, destination: tuple[str, int]) -> None:
    with contextlib.suppress(BaseException):
        try:
            line.sendall(raise_tap(prepare_tap()).model_dump_json().encode())
        except ReliveError as error:
            line.sendall(f"{error}: {error.cause}".encode())
            os._exit(1)
        with socket.create_connection(destination, timeout=_WITHIN) as sock:
            sock.sendall(_SAID)
            line.recv(1)  # until somebody has looked
    os._exit(0)
