"""The server's page on what can be asked: no script, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.testclient import TestClient

from relive.config import load_settings
from relive.server.application import make_application
from relive.server.routers.pages import api_page


def test_the_page_names_every_path_and_loads_nothing(tmp_path: Path) -> None:
    app = make_application(load_settings(home=tmp_path), host="127.0.0.1", without_credentials=True)
    client = TestClient(app, base_url="http://127.0.0.1")  # not started: no tasks are needed
    answer = client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = answer.text
    paths = app.openapi()["paths"]
    assert len(paths) > 20
    assert [path for path in paths if f"<code>{path}</code>" not in page] == []
    assert not re.search(r"<script|<link|<img|<iframe|\ssrc=|url\(|@import|https?://(?!localhost)", page)
    assert "/docs" not in paths


def test_what_a_description_says_is_text() -> None:
    schema = {
        "info": {"title": "<b>", "version": "1", "description": "<i>"},
        "paths": {
            "/<x>": {
                "get": {"tags": ["<t>"], "description": "<d>", "responses": {"200": {"description": "<r>"}}}
            }
        },
        "components": {"schemas": {"<s>": {"title": "</pre><script>"}}},
    }
    assert not re.search(r"<(?:b|i|x|t|d|r|s|script)>", api_page(schema))
