"""Incidents and their packages, as the agent keeps them."""

from __future__ import annotations

from pathlib import Path

from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import Incidents
from relive.model.failure import ErrorPackage, FailedRequest, Frame, Link, Relation, Source, Versions, Where
from relive.model.incident import FailureKind, Incident, Sighting

BEGAN_NS = 1_700_000_000_000_000_000

OWN = Frame(
    file="/srv/shop/pay.py",
    line=57,
    function="charge",
    module="pay",
    own=True,
    source=Source(
        first=55, lines=["def charge(order):", "    price = order.price", "    return rates[order.currency]"]
    ),
    locals={"order": "<Order 7>", "long": "x" * 500},
    locals_cut=2,
)
LIBRARY = OWN.model_copy(update={"file": "/usr/lib/asgi.py", "own": False, "function": "run_asgi"})


def package(text: str = "'EUR'", **facts: object) -> ErrorPackage:
    """Of a KeyError in a request."""
    made = ErrorPackage(
        version=1,
        type="builtins.KeyError",
        text=text,
        fingerprint="0123456789abcdef",
        where=Where.HANDLER,
        wall_ns=BEGAN_NS,
        mono_ns=1,
        pid=7,
        thread="MainThread",
        lane=0,
        request=FailedRequest(number=1, server="asgi", method="POST", target="/pay?token=hunter2"),
        chain=[
            Link(type="builtins.KeyError", text=text, frames=[LIBRARY, OWN]),
            Link(
                type="builtins.ValueError", text="no rate", relation=Relation.CAUSE, frames=[LIBRARY, LIBRARY]
            ),
        ],
        versions=Versions(python="3.11.2", packages={"fastapi": "0.115"}),
        cwd="/srv/shop",
    )
    return made.model_copy(update=facts)


def incident(
    home: Path, number: int = 0, with_package: ErrorPackage | None = None, summary: str = ""
) -> Incident:
    """Keep one; ``number`` sets it apart from others."""
    sighting = Sighting(
        kind=FailureKind.EXCEPTION,
        fingerprint=f"{number:016x}",
        summary=summary or f"request {number} (POST /pay) was answered with status 500",
        seen_wall_ns=BEGAN_NS + number * 1_000_000_000,
    )
    kept = Incidents(home / "incidents")
    one = kept.add(
        "pay", "pay-1", sighting, before=None, at=None, log_end=0, log_tail=["it said", "this last"]
    )
    if with_package is not None:
        store_evidence(home / "incidents", one.number, Evidence(with_package.model_dump_json().encode(), []))
    return one
