"""Two hosts with a store each, and remotes of both kinds between them; the S3 one is a real server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from relive.model.commit import HostFacts
from relive.remotes.remote import Remote, open_remote
from relive.store import Store
from relive.store.keyring import Keyring

from .s3_server import Swift

HERE = HostFacts(name="here", kernel="6.1", criu="4.2")


@dataclass
class Host:
    """A home with a store, which another host may trust."""

    home: Path

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.keyring = Keyring(self.home / "keys")
        self.store = Store(self.home / "store")

    def trust(self, other: Host) -> None:
        trusted = self.home / "keys" / "trusted"
        trusted.mkdir(parents=True, exist_ok=True)
        (trusted / f"{other.home.name}.pub").write_text(other.keyring.public_key.hex() + "\n")


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "sender")
    yield host
    host.store.close()


@pytest.fixture
def receiver(tmp_path: Path, sender: Host) -> Iterator[Host]:
    host = Host(tmp_path / "receiver")
    host.trust(sender)
    yield host
    host.store.close()


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    with Swift.running(tmp_path_factory.mktemp("swift")) as server:
        yield server


@pytest.fixture
def s3(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> Swift:
    """The server, known to this process as its S3 endpoint."""
    for name, value in swift.environment().items():
        monkeypatch.setenv(name, value)
    return swift


@pytest.fixture
def directory_remote(tmp_path: Path) -> Remote:
    return open_remote(f"file://{tmp_path}/remote", make=True)


@pytest.fixture(params=["file", "s3"])
def remote(request: pytest.FixtureRequest) -> Remote:
    """A fresh remote of each kind."""
    if request.param == "file":
        return request.getfixturevalue("directory_remote")
    return open_remote(request.getfixturevalue("s3").fresh_url(), make=True)


@contextmanager
def silent(_what: str, _total: int) -> Iterator[Callable[[int], None]]:
    """Shows nothing."""
    yield lambda _done: None
