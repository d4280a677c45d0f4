"""Accounts of the incident that ``builders`` makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relive.config import Settings
from relive.incidents.report.detail import Account, account_of

from .builders import add_incident, keep_beside, package_json, paying, record_by_proxy

Told = Callable[..., Account]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Makes the account; ``package``: what lies beside the incident; ``inside``, ``proxy``: whether these recorded."""

    def make(package: bytes | None = None, *, inside: bool = True, proxy: bool = True) -> Account:
        incident = add_incident(tmp_path)
        keep_beside(
            tmp_path,
            incident.number,
            package_json() if package is None else package,
            paying() if inside else [],
        )
        if proxy:
            record_by_proxy(tmp_path)
        return account_of(Settings(home=tmp_path), incident)

    return make
