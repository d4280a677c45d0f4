"""A fork server for these tests alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.fork_servers import OwnServer, own_variable


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    made = OwnServer({**os.environ, **own_variable()})
    yield made
    made.kill()
