"""Where settings come from, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.config import Settings, load_settings
from relive.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without relive.toml, and no RELIVE_* variables."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RELIVE_{name.upper()}", raising=False)


def refusal(**overrides: object) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(**overrides)
    return caught.value


def test_without_any_source_the_defaults_hold():
    settings = load_settings()
    assert settings.home == Path("/var/lib/relive")
    assert settings.commit_limit == 20.0
    assert settings.keep == Settings.model_fields["keep"].default


def test_all_state_lies_below_home(tmp_path):
    settings = load_settings(home=tmp_path)
    for path in (
        settings.store,
        settings.capsules,
        settings.branches,
        settings.incidents,
        settings.tools_path,
    ):
        assert path.parent == tmp_path


def test_tools_may_lie_elsewhere(tmp_path):
    assert load_settings(home=tmp_path, tools=tmp_path / "bin").tools_path == tmp_path / "bin"


def test_the_environment_is_read(monkeypatch, tmp_path):
    monkeypatch.setenv("RELIVE_HOME", str(tmp_path))
    monkeypatch.setenv("RELIVE_KEEP", "3")
    settings = load_settings()
    assert settings.home == tmp_path
    assert settings.keep == 3


def test_relive_toml_of_the_working_directory_is_read(tmp_path):
    (tmp_path / "relive.toml").write_text("commit_limit = 3.5\n")
    assert load_settings().commit_limit == 3.5


def test_the_environment_wins_over_relive_toml(monkeypatch, tmp_path):
    (tmp_path / "relive.toml").write_text("keep = 5\nbody_limit = 7\n")
    monkeypatch.setenv("RELIVE_KEEP", "6")
    settings = load_settings()
    assert settings.keep == 6
    assert settings.body_limit == 7


def test_what_the_caller_says_wins_over_all(monkeypatch):
    monkeypatch.setenv("RELIVE_KEEP", "6")
    assert load_settings(keep=7).keep == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep", "0"),
        ("keep", "many"),
        ("keep", "1.5"),
        ("commit_limit", "0"),
        ("commit_limit", "-1"),
        ("commit_limit", "nan"),
        ("restore_limit", "soon"),
        ("ghost_limit", "1G"),
        ("body_limit", "-5"),
        ("incident_pause", "-0.1"),
    ],
)
def test_a_wrong_value_is_refused_and_named(monkeypatch, name, value):
    monkeypatch.setenv(f"RELIVE_{name.upper()}", value)
    error = refusal()
    assert name in error.message
    assert value in error.message
    assert error.cause
    assert error.remedy


def test_an_unknown_name_in_relive_toml_is_refused_and_named(tmp_path):
    (tmp_path / "relive.toml").write_text("comit_limit = 3\n")
    assert "comit_limit" in refusal().message


def test_an_unknown_override_is_refused():
    assert "kep" in refusal(kep=3).message


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        load_settings().keep = 3


def test_every_setting_says_what_it_is():
    assert all(field.description for field in Settings.model_fields.values())


def test_a_relive_toml_that_is_no_toml_is_a_declared_error(tmp_path):
    (tmp_path / "relive.toml").write_text("keep = \n")
    assert "relive.toml" in str(refusal())


def test_an_unknown_variable_is_refused_and_named(monkeypatch):
    """A misspelt RELIVE_HOME must not send a commit to the default one."""
    monkeypatch.setenv("RELIVE_HOEM", "/somewhere")
    assert "RELIVE_HOEM" in refusal().message


@pytest.mark.parametrize("value", ["", "here"])
def test_home_must_be_an_absolute_path(monkeypatch, value):
    """The agent and its capsule have other working directories than the command."""
    monkeypatch.setenv("RELIVE_HOME", value)
    assert "home" in refusal().message


def test_a_limit_must_be_finite(monkeypatch):
    monkeypatch.setenv("RELIVE_COMMIT_LIMIT", "inf")
    assert "commit_limit" in refusal().message
