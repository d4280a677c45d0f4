"""A word that a route does not know is refused by it, and never left unread: each route, as the API's own page declares it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anyio
import httpx
import pytest

from relive.config import Settings
from relive.operations.operation import Route
from relive.server.application import make_application
from relive.server.credentials import Scope, Tokens
from relive.server.rate_limits import Allowance
from support.declared import NO_WORD, choices_of, least, with_grammar

_OFTEN = Allowance(token_rate=1e6, token_burst=10**6, address_rate=1e6, address_burst=10**6)
Answers = list[tuple[str, httpx.Response]]


class Asking:
    """The application in this process, by who may do everything; what it would need to do anything is not there."""

    def __init__(self, settings: Settings) -> None:
        with closing(Tokens(settings.server)) as tokens:
            _, self._token = tokens.create("all", list(Scope), lifetime=600)
        self._app = make_application(settings, host="127.0.0.1", allowance=_OFTEN)
        self._app.state.tasks = self._app.state.export_store = self._app.state.links = None
        self.page: dict[str, Any] = self._app.openapi()
        self.named: dict[str, Any] = self.page["components"]["schemas"]

    def routes(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(method, path, what is declared of it)."""
        for path, methods in self.page["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def body(self, operation: dict[str, Any]) -> dict[str, Any] | None:
        """The schema of its JSON body, if it takes one."""
        asked = operation.get("requestBody")
        found: dict[str, Any] | None = asked and asked["content"]["application/json"]["schema"]
        return found

    def place(self, path: str, operation: dict[str, Any], **given: str) -> str:
        """The path with values of nothing that there is."""
        for one in operation.get("parameters", ()):
            if one["in"] == "path":
                value = given.get(one["name"], least(one["schema"], self.named))
                path = path.replace(f"{{{one['name']}}}", str(value))
        return path

    def all(self, requests: list[tuple[str, dict[str, Any]]]) -> Answers:
        """What each (label, request) is answered."""

        async def ask() -> Answers:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            shown = {"Authorization": f"Bearer {self._token}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", headers=shown
            ) as client:
                return [(label, await client.request(**wanted)) for label, wanted in requests]

        return anyio.run(ask)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    return Asking(Settings(home=tmp_path_factory.mktemp("home")))


def unrefused(answers: Answers, word: str = "") -> list[str]:
    """Labels of those that are no refusal of that word with a code."""
    wrong = []
    for label, answer in answers:
        error = answer.json().get("error", {}) if answer.status_code == 422 else {}
        if not error.get("code") or word not in f"{error['message']} {error['cause']}":
            wrong.append(f"{label}: {answer.status_code} {answer.text[:200]}")
    return wrong


def test_a_word_of_the_query_that_a_route_does_not_read(asking):
    wanted = []
    for method, path, operation in asking.routes():
        request = {"method": method, "url": asking.place(path, operation), "params": {"nosuch": "3"}}
        wanted.append((f"{method} {path}", request))
    assert len(wanted) > 60
    assert unrefused(asking.all(wanted), "nosuch") == []


def test_each_word_of_the_query_that_the_page_declares_is_known(asking):
    """Whatever is said of its value."""
    wanted = []
    for method, path, operation in asking.routes():
        place = asking.place(path, operation)
        for one in operation.get("parameters", ()):
            if one["in"] == "query":
                request = {"method": method, "url": place, "params": {one["name"]: "\0"}}
                wanted.append((f"{method} {path} {one['name']}", request))
    assert len(wanted) > 30
    assert [label for label, answer in asking.all(wanted) if "is not known here" in answer.text] == []


def test_a_word_of_the_body_that_a_route_does_not_read(asking):
    """Also of routes that take none at all."""
    wanted = []
    for method, path, operation in asking.routes():
        schema = asking.body(operation)
        said = least(schema, asking.named) if schema is not None else {}
        request = {"method": method, "url": asking.place(path, operation), "json": said | {"nosuch": 3}}
        wanted.append((f"{method} {path}", request))
    assert unrefused(asking.all(wanted), "nosuch") == []


def test_a_word_that_is_none_of_the_few_that_there_are(asking):
    wanted = []
    for method, path, operation in asking.routes():
        place = asking.place(path, operation)
        for one in operation.get("parameters", ()):
            if choices_of({"properties": {"it": one["schema"]}}, asking.named):
                told = {one["name"]: NO_WORD}
                request = {"url": asking.place(path, operation, **told)} if one["in"] == "path" else {}
                request = {"method": method, "url": place, "params": told} | request
                wanted.append((f"{method} {path} {one['name']}", request))
        schema = asking.body(operation)
        for name in choices_of(schema, asking.named) if schema is not None else ():
            said = least(schema, asking.named) | {name: NO_WORD}
            wanted.append((f"{method} {path} {name}", {"method": method, "url": place, "json": said}))
    assert len(wanted) > 20
    assert unrefused(asking.all(wanted)) == []


def test_a_text_that_its_grammar_does_not_know(asking):
    """At once, and not by a task that fails."""
    wanted = []
    for operation, name, value in with_grammar():
        rest = operation.faces.rest
        texts = (rest.text,) if isinstance(rest, Route) else rest if isinstance(rest, tuple) else ()
        for text in texts:
            method, path = text.split()
            declared = asking.page["paths"][path][method.lower()]
            schema = asking.body(declared)
            known = asking.named[schema["$ref"].rpartition("/")[2]]["properties"] if schema else {}
            if name in known:
                said = least(schema, asking.named) | {name: value}
                request = {"method": method, "url": asking.place(path, declared), "json": said}
                wanted.append((f"{text} {name}", request))
    assert len(wanted) > 20
    assert unrefused(asking.all(wanted)) == []


def test_who_has_no_token_is_told_that_first(asking):
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(asking._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as stranger:
            return await stranger.get("/commits", params={"nosuch": "3"})

    assert anyio.run(ask).status_code == 401
