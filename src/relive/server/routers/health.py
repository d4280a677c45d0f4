"""What this host can do, and whether the server answers."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from relive import __version__
from relive.operations.health import DOCTOR, DoctorParams, Health
from relive.server.routers.provided import Configured, Reader, performed

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The server answers."""

    version: str


@router.get("/health", operation_id="health")
def alive() -> Alive:
    """Whether the server answers; needs no token"""
    return Alive(version=__version__)


@router.get("/doctor", operation_id="doctor")
def doctor(settings: Configured, _caller: Reader) -> Health:
    """Find out what works on this host by trying it; takes seconds"""
    return performed(DOCTOR, settings, DoctorParams())
