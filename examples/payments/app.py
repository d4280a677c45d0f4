"""A small payments service: merchants' accounts, card payments into them, settlement in the background.

Run it with ``uvicorn app:app --app-dir examples/payments``. What it writes is under $PAYMENTS_DATA (./data).
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from ledger import Account, Ledger, Payment, Settlement, UnknownAccount, UnknownPayment
from pydantic import BaseModel, Field
from settlement import Settler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

DATA = Path(os.environ.get("PAYMENTS_DATA", "data"))
DATA.mkdir(parents=True, exist_ok=True)
ledger = Ledger(DATA / "payments.db")
settler = Settler(ledger, DATA / "reports")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Settle while the service runs."""
    settler.start()
    yield
    settler.stop()


app = FastAPI(title="payments", lifespan=lifespan)


class NewPayment(BaseModel):
    """What a checkout sends."""

    account: int
    amount: int = Field(gt=0, le=10_000_000, description="cents")
    reference: str = Field(max_length=80)


class AccountName(BaseModel):
    """An account in the list of all."""

    id: int
    name: str


@app.exception_handler(UnknownAccount)
@app.exception_handler(UnknownPayment)
def not_found(_: Request, unknown: Exception) -> JSONResponse:
    """Answer 404 for a number that means nothing."""
    return JSONResponse({"error": type(unknown).__name__, "id": unknown.args[0]}, status_code=404)


@app.get("/accounts")
def list_accounts() -> list[AccountName]:
    """List all accounts."""
    return [AccountName(id=number, name=name) for number, name in ledger.accounts()]


@app.get("/accounts/{account_id}")
def show_account(account_id: int) -> Account:
    """Show what a merchant sees on opening the app: balance to be paid out, volume, fee rate."""
    return ledger.account(account_id)


@app.get("/accounts/{account_id}/settlements")
def list_settlements(account_id: int) -> list[Settlement]:
    """List what was paid out lately."""
    return ledger.settlements(account_id)


@app.post("/payments", status_code=201)
def pay(new: NewPayment) -> Payment:
    """Take a payment."""
    return ledger.pay(new.account, new.amount, new.reference)


@app.get("/payments/{payment_id}")
def show_payment(payment_id: int) -> Payment:
    """Show one payment."""
    return ledger.payment(payment_id)
