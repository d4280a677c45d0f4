"""Publishing on an address that cannot be had: why, and what to do."""

import socket

import pytest

from relive.errors import UsageError
from relive.sandbox.port_forward import Forwarder


def refused(host: str, port: int) -> UsageError:
    with pytest.raises(UsageError) as caught:
        Forwarder("/proc/self/ns/net", host, port, 80)
    return caught.value


@pytest.mark.parametrize("host", ["1", "300.1.1.1"])
def test_an_address_that_is_none_of_this_host_is_told_from_a_taken_port(host):
    error = refused(host, 8000)
    assert error.message == f"cannot publish on {host} port 8000"
    assert error.cause and "while attempting" not in error.cause
    assert error.remedy and "leave the address out" in error.remedy
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = refused("127.0.0.1", listener.getsockname()[1])
    assert taken.cause == "Address already in use" and taken.remedy and "another port" in taken.remedy
