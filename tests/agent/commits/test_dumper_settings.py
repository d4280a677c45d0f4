"""How a service is committed stays as it was said at its start, whoever starts an agent later."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.agent.commits.dumper import dumper_settings
from relive.config import load_settings
from relive.operations import observing
from relive.operations.observing import ObservedParams, policy_of


@pytest.fixture(autouse=True)
def host_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else there are no micro-commits, whatever is said (``test_micro_choice``)."""
    monkeypatch.setattr(observing, "_hindrance", lambda _settings: None)


@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_what_was_said_or_set_at_the_start_holds(
    said: bool | None, setting: bool, later: bool, tmp_path: Path
) -> None:
    policy = policy_of(load_settings(home=tmp_path, micro=setting), ObservedParams(micro=said))
    wanted = setting if said is None else said
    assert dumper_settings(load_settings(home=tmp_path, micro=later), policy).micro is wanted


@pytest.mark.parametrize("later", [True, False])
def test_a_service_of_an_earlier_relive_is_committed_as_the_settings_say(later: bool, tmp_path: Path) -> None:
    policy = policy_of(load_settings(home=tmp_path), ObservedParams()).model_copy(update={"micro": None})
    assert dumper_settings(load_settings(home=tmp_path, micro=later), policy).micro is later
