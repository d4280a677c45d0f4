"""What `relive try` refuses before anything is restored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relive.errors import UsageError
from relive.model.commit import TargetKind
from relive.operations.trying import refuse_container


def case_of(kind: TargetKind) -> Any:
    return SimpleNamespace(service="shop", manifest=SimpleNamespace(target=SimpleNamespace(kind=kind)))


def test_a_service_in_a_container_is_not_started_afresh_on_the_host() -> None:
    with pytest.raises(UsageError, match="shop runs in a container") as refused:
        refuse_container(case_of(TargetKind.CONTAINER))
    assert "--fix" in str(refused.value.remedy)
    refuse_container(case_of(TargetKind.CAPSULE))
