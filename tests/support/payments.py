"""A home of Relive in which the payments example has failed, for the tests of faces: made once in each process of the suite."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from real.harness import Relive
from support.ports import free_port
from support.waiting import LIMIT, eventually

__all__ = ["Payments", "payments_home"]


@dataclass(frozen=True)
class Payments:
    """The home, the running service's address and port, and the number of its incident, which two commits belong to."""

    relive: Relive
    name: str
    url: str
    port: int
    incident: int


@contextmanager
def payments_home() -> Iterator[Payments]:
    """Run the service under Relive until a payment fails by itself.

    It commits when it is told to and at its failure: commits by the clock would cost a tenth of a processor until the session ends.
    """
    home = Path(tempfile.mkdtemp(prefix="relive-payments-"))
    data = Path(tempfile.mkdtemp(prefix="payments-data-"))
    relive = Relive(home, "payments")
    try:
        yield _failed(relive, data)
    finally:
        relive.close()
        shutil.rmtree(home)
        shutil.rmtree(data)


def _failed(relive: Relive, data: Path) -> Payments:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service = [sys.executable, "-m", "uvicorn", "slowed_payments:app", "--port", str(port)]
    relive(
        *(
            "run",
            "--detach",
            "--name",
            "payments",
            "--every",
            "never",
            *("--listen", f"127.0.0.1:{port}"),
            "--",
            *service,
        ),
        *("--app-dir", str(Path(__file__).parent)),
        environment={"PAYMENTS_DATA": str(data), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    with httpx.Client(base_url=url, timeout=LIMIT) as customer:
        eventually(lambda: _answers(customer), "the service answers")
        eventually(lambda: _fails(relive, customer), "a payment fails", limit=90)
    # On a slow machine a request before it may have been noted as hanging.
    found = eventually(
        lambda: [one for one in relive.incidents() if one["exception"].startswith("KeyError")],
        "the failure is an incident",
    )
    return Payments(relive, "payments", url, port, found[-1]["number"])


def _answers(customer: httpx.Client) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return customer.get("/accounts/1").status_code == 200
    return False


def _fails(relive: Relive, customer: httpx.Client) -> bool:
    """Pay, look at the account while its batch is closed, as the merchant did, and pay again: that fails, if it was.

    A commit in between has the state that fails, so that replays need not be lucky.
    """
    payment = {"account": 7, "amount": 1000, "reference": "order-1"}
    customer.post("/payments", json=payment)
    customer.get("/accounts/7").raise_for_status()
    relive("commit", "payments")
    return customer.post("/payments", json=payment).status_code == 500
