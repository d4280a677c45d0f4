"""Packets of a port taken from the kernel (AF_PACKET), by the programs that recording beside the way uses."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable

from relive.doctor.finding import Obstacle, ProbeResult, in_words, limited, works
from relive.doctor.probe import ProbeContext, root_remedy
from relive.errors import CapsuleStartFailed
from relive.kernel import loopback
from relive.kernel.namespaces import Namespace, unshare
from relive.kernel.portprogram import BEGINNING, load_port_program
from relive.proxies.ingress.options import CAPTURE
from relive.proxies.ingress.spool import PacketSpool

__all__ = ["packets"]

_WITHIN = 2.0  # [s]
_SAID = b"a byte of which a copy is taken"
_KERNEL = "use a kernel with CONFIG_PACKET; without it a proxy in their way records requests"
_CUTTING = (
    "give Relive CAP_BPF and CAP_NET_ADMIN (a container: also seccomp's leave for bpf), or use a kernel of version 5.3 or later "
    "with CONFIG_BPF_SYSCALL that is not locked down; until then all of each answer is copied and kept"
)


def packets(context: ProbeContext) -> ProbeResult:
    """In a network of its own a client speaks to a service, and what it says is among the packets that are taken.

    They are taken through the program that cuts long answers, unless the kernel refuses that.
    """
    if os.geteuid() != 0:
        raise Obstacle("not as this user", cause="only root may take packets", remedy=root_remedy())
    unshare(Namespace.NETWORK)
    loopback.bring_up()
    program = context.settings.tools_path / CAPTURE
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        takes = refused = None
        try:
            takes = load_port_program(port, BEGINNING)
            stack.callback(os.close, takes)
        except OSError as error:
            refused = in_words(error)
        try:
            spool = PacketSpool(program, context.directory, port, takes=takes)
        except CapsuleStartFailed as error:
            raise Obstacle(
                "its program does not start", cause=str(error.cause), remedy=error.remedy
            ) from error
        stack.callback(spool.close)
        _wait_for(spool, lambda: spool.until > 0, "no packet socket can be had")
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        stack.enter_context(listener.accept()[0])
        client.sendall(_SAID)
        _wait_for(spool, lambda: _holds_what_was_said(spool), "a packet socket is there, and no packet comes")
    if refused is not None:
        cause = f"the kernel refuses the program that cuts them (BPF): {refused}"
        return limited("packets are taken, and long answers as a whole", cause=cause, remedy=_CUTTING)
    return works("a connection's packets are taken")


def _holds_what_was_said(spool: PacketSpool) -> bool:
    return any(_SAID in block.data.raw[: block.size] for block in spool.blocks())


def _wait_for(spool: PacketSpool, is_there: Callable[[], bool], lacking: str) -> None:
    until = time.monotonic() + _WITHIN
    while (left := until - time.monotonic()) > 0 and select.select([spool], [], [], left)[0]:
        if not spool.hear():
            cause = "relive-capture has ended; what it says is above, or it was killed"
            raise Obstacle(lacking, cause=cause, remedy=_KERNEL)
        if is_there():
            return
    raise Obstacle(lacking, cause=f"nothing within {_WITHIN:.0f} s", remedy=_KERNEL)
