"""Sharing a state by its id: push, send the id, pull, restore on another host."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.store.keyring import Keyring
from support.ports import free_port

from .harness import PYTHON, SERVICES, Http, Refused, Relive, ask


@pytest.fixture
def elsewhere() -> Iterator[Relive]:
    """Another host, as far as Relive knows: a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    made = Relive(home, "share")
    yield made
    made.close()
    shutil.rmtree(home)


def test_a_service_lives_on_at_another_host(relive: Relive, elsewhere: Relive, tmp_path: Path) -> None:
    """Memory and files are those of the commit; the host that it comes to has nothing of the service."""
    port = free_port()
    capsule = relive.run(PYTHON, SERVICES / "attached.py", str(port), tmp_path / "counts")
    ask(port, "/")
    with Http(port) as client:
        counted = client("POST", "/")["count"]
    commit = relive.commit(capsule)
    assert commit.manifest.host.machine == "x86_64"
    assert "sse2" in (commit.manifest.host.cpu or [])

    url = f"file://{tmp_path}/remote"
    assert relive("push", url, "service")["id"] == commit.id
    with pytest.raises(Refused, match="not trusted"):
        elsewhere("pull", url, commit.id[:10])
    trusted = elsewhere.home / "keys" / "trusted"
    trusted.mkdir(parents=True)
    (trusted / "friend.pub").write_text(Keyring(relive.home / "keys").public_key.hex())
    assert elsewhere("pull", url, commit.id[:10])["is_new"]

    (tmp_path / "counts").unlink()  # another host has no such file
    branch = elsewhere.restore(commit.id, port)
    with Http(branch.ports[port]) as client:
        assert client("POST", "/")["count"] == counted + 1
    assert branch.exec("cat", str(tmp_path / "counts")).split() == ["1", "2"]
    assert not (tmp_path / "counts").exists()  # the file came with the commit
