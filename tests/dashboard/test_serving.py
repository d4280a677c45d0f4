"""How the dashboard is begun, and refused."""

from __future__ import annotations

import socket
import sys

import pytest

from relive.cli.dashboard_cmd import dashboard
from relive.dashboard.serving import new_token, serve
from relive.errors import HostIncapable, ToolMissing, UsageError


def never(address: str) -> None:
    raise AssertionError(f"it serves at {address}")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "relive.example"])
def test_an_open_address_without_a_token_is_refused_with_cause_and_remedy(host):
    with pytest.raises(UsageError) as refused:
        serve(host, 0, None, never)
    assert "acts as root" in str(refused.value.cause)
    assert "ssh -L" in str(refused.value.remedy)


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(HostIncapable) as refused:
        serve("127.0.0.1", other.getsockname()[1], new_token(), never)
    assert refused.value.cause == "Address already in use"
    assert "--port 0" in str(refused.value.remedy)


def test_tokens_differ_and_fit_into_an_address():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.replace("-", "").replace("_", "").isalnum() and len(token) >= 32 for token in tokens)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "relive.dashboard.serving")
    monkeypatch.setitem(sys.modules, "streamlit", None)
    with pytest.raises(ToolMissing) as refused:
        dashboard()
    assert "streamlit" in str(refused.value.cause)
    assert refused.value.remedy == "pip install 'relive[dashboard]'"
