"""The libraries that stand in for two of CRIU's habits with TCP connections, on sockets in repair mode (tcp(7), TCP_REPAIR)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.kernel import loopback
from relive.kernel.namespaces import in_new_network

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="TCP_REPAIR needs CAP_NET_ADMIN")

TOOLS = CriuTools(load_settings().tools_path)
HEAD = """
import select, socket
REPAIR, QUEUE, SEND, TCP = 19, 20, 2, socket.IPPROTO_TCP
"""
# As libsoccr reads what was sent (soccr/soccr.c, get_queue): the queue that it leaves chosen.
SAVED = f"""{HEAD}
listener = socket.create_server(("127.0.0.1", 0))
end = socket.create_connection(listener.getsockname())
end.send(b"sent")
end.setsockopt(TCP, REPAIR, 1)
end.setsockopt(TCP, QUEUE, SEND)
end.recv(9, socket.MSG_PEEK | socket.MSG_DONTWAIT)
print(end.getsockopt(TCP, QUEUE))
"""
# As it brings unsent bytes back (libsoccr_restore_queue), where the other end is not there yet: whether the connection lives.
BROUGHT_BACK = f"""{HEAD}
end = socket.socket()
end.setsockopt(TCP, REPAIR, 1)
end.bind(("127.0.0.1", 7001))
end.connect(("127.0.0.1", 7002))
end.setsockopt(TCP, REPAIR, 0)
poll = select.poll()
poll.register(end, 0)
print("reset" if poll.poll(500) else "still")
"""


def said(program: str, shim: Path | None) -> str:
    """What a program prints in a network of its own with the library loaded."""

    def run() -> str:
        loopback.bring_up()
        environment = {} if shim is None else {"LD_PRELOAD": str(shim)}
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60
        ).stdout.strip()

    return in_new_network(run)


@pytest.mark.parametrize(("loaded", "queue"), [(True, "0"), (False, "2")])
def test_no_queue_stays_chosen_after_a_dump(loaded: bool, queue: str) -> None:
    assert said(SAVED, TOOLS.tcp_dump_shim if loaded else None) == queue


def test_bytes_are_brought_back_before_the_other_end_is() -> None:
    assert said(BROUGHT_BACK, TOOLS.tcp_restore_shim) == "still"
