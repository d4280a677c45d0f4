"""What all plain values have in common."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Value"]


class Value(BaseModel):
    """Base of plain values: immutable; fields that are not known are passed over when one is read."""

    model_config = ConfigDict(frozen=True)
