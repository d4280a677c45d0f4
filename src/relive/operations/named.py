"""Whether what the params name is there: looked up before a process is started for it, so that a misspelt name is refused at once.

These read only, and may be called in any thread. The operation itself looks again.
"""

from __future__ import annotations

from typing import Protocol

from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.model.text import is_number
from relive.store import Store

__all__ = ["look_up_commit", "look_up_commit_or_incident", "look_up_incident"]


class _OfCommit(Protocol):
    @property
    def ref(self) -> str: ...


class _OfIncident(Protocol):
    @property
    def incident(self) -> int: ...


def look_up_commit(settings: Settings, params: _OfCommit) -> None:
    """Raises RefUnknown, RefAmbiguous, StoreError."""
    Store(settings.store).resolve(params.ref)


def look_up_incident(settings: Settings, params: _OfIncident) -> None:
    """Raises IncidentUnknown."""
    Incidents(settings.incidents).get(params.incident)


def look_up_commit_or_incident(settings: Settings, params: _OfCommit) -> None:
    """Of a ``ref`` that may be ``incident/NUMBER``; raises as the others."""
    word, _, number = params.ref.partition("/")
    if word == "incident" and is_number(number):
        Incidents(settings.incidents).get(int(number))
    else:
        look_up_commit(settings, params)
