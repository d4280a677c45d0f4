"""Pages run without a browser, on homes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from relive import dashboard
from relive.config import Settings

_APP = Path(dashboard.__file__).with_name("app.py")
_LIMIT = 60  # [s] for one run of a page's script

Look = Callable[..., AppTest]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything; commands and pages find it."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RELIVE_{name.upper()}", raising=False)
    monkeypatch.setenv("RELIVE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def look(home: Path) -> Look:
    """Open a page: ``look("incident", number=17)``; nothing on it may have raised."""

    def open_page(page: str, **asked: object) -> AppTest:
        app = AppTest.from_file(str(_APP), default_timeout=_LIMIT).run()
        if page != "incidents":
            app.switch_page(f"views/{page}.py")
        for name, value in asked.items():
            app.query_params[name] = str(value)
        app.run()
        assert not app.exception
        return app

    return open_page
