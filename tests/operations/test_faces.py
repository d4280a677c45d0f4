"""Whatever can be asked for stands in the catalogue of faces, with a reason where a face does not have it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import typer.main

from mcp import Client
from relive.cli.app import application
from relive.config import Settings
from relive.mcp.server import make_server
from relive.model.token_scope import Scope
from relive.operations.catalogue import OPERATIONS
from relive.operations.faces import BESIDE, FACES
from relive.operations.operation import Absent, Face, Faces, Operation, Route, Tool
from relive.server.application import make_application


def words(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield " ".join(path)
    for name, child in children.items():
        yield from words(child, (*path, name))


def tools(settings: Settings, caplog: pytest.LogCaptureFixture, *, for_host: bool) -> set[str]:
    async def ask() -> set[str]:
        async with Client(make_server(settings, acts=True, for_host=for_host)) as client:
            return {one.name for one in (await client.list_tools()).tools}

    found = anyio.run(ask)
    assert "already exists" not in caplog.text  # the SDK drops the second of one name, and only says so
    return found


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(home=tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def page(settings: Settings) -> dict[str, Any]:
    """The API's own description of itself."""
    return make_application(settings, host="127.0.0.1").openapi()


def routes_of(faces: Faces) -> tuple[str, ...]:
    if isinstance(faces.rest, Route):
        return (faces.rest.text,)
    return () if isinstance(faces.rest, Absent) else faces.rest


def tools_of(name: str, faces: Faces) -> tuple[str, ...]:
    if isinstance(faces.mcp, Tool):
        return (OPERATIONS[name].tool_name,)
    return () if isinstance(faces.mcp, Absent) else faces.mcp


def test_every_command_is_declared_and_every_declared_one_is_there():
    declared = {one for faces in FACES.values() if not isinstance(faces.cli, Absent) for one in faces.cli}
    assert declared == set(words(typer.main.get_command(application())))


def test_every_route_is_declared_and_every_declared_one_is_there(page):
    there = {f"{method.upper()} {path}" for path, methods in page["paths"].items() for method in methods}
    assert {one for faces in FACES.values() for one in routes_of(faces)} == there


def test_every_tool_is_declared_and_every_declared_one_is_there(settings, caplog):
    declared = {one for name, faces in FACES.items() for one in tools_of(name, faces)}
    assert declared == tools(settings, caplog, for_host=True)


def test_tools_for_the_host_are_there_only_where_it_is_asked_for(settings, caplog):
    """GIVEN `relive mcp` as it always was, THEN no tool acts on the host beyond what tools could before."""
    for_host = {
        one.tool_name
        for one in OPERATIONS.values()
        if isinstance(one.faces.mcp, Tool) and one.faces.mcp.is_for_host
    }
    assert {"start_service", "push", "pull", "key_new", "key_trust", "stop"} <= for_host
    assert tools(settings, caplog, for_host=True) - tools(settings, caplog, for_host=False) == for_host


@pytest.mark.parametrize("name", FACES)
def test_what_a_face_does_not_have_has_a_reason(name):
    faces = FACES[name]
    for face in (faces.cli, faces.rest, faces.mcp):
        if isinstance(face, Absent):
            assert len(face.reason.split()) >= 4 and not face.reason.endswith(".")
    assert not all(isinstance(face, Absent) for face in (faces.cli, faces.rest, faces.mcp))


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_what_starts_programs_or_changes_the_host_needs_the_scope_for_it(operation: Operation[Any, Any]):
    """A tool that only `--host` opens has a route that only `host` opens; dropping commits alone was `operate`'s before."""
    rest, mcp = operation.faces.rest, operation.faces.mcp
    if isinstance(rest, Route) and isinstance(mcp, Tool) and operation.name != "retain":
        assert (Scope.HOST in rest.scopes) == mcp.is_for_host


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_field_of_params_says_what_it_is(operation: Operation[Any, Any]):
    assert [name for name, field in operation.params.model_fields.items() if not field.description] == []


def body_of(page: dict[str, Any], route: str) -> set[str]:
    """The fields of a route's body."""
    method, path = route.split()
    asked = page["paths"][path][method.lower()]
    if "requestBody" not in asked:
        return {one["name"] for one in asked.get("parameters", [])}
    name = asked["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    return set(page["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize("name", [n for n, one in OPERATIONS.items() if isinstance(one.faces.rest, tuple)])
def test_a_route_written_by_hand_has_every_field_or_a_reason(page, name):
    operation = OPERATIONS[name]
    route = operation.faces.rest[0]  # type: ignore[index]
    path = set(re.findall(r"{(\w+)}", route))
    left_out = {field for one in operation.faces.only if Face.REST not in one.faces for field in one.fields}
    assert set(operation.params.model_fields) - body_of(page, route) - path == left_out


def test_no_name_is_given_twice():
    derived = [one.tool_name for one in OPERATIONS.values() if isinstance(one.faces.mcp, Tool)]
    assert len(set(derived)) == len(derived)
    assert not set(BESIDE) & set(OPERATIONS)
