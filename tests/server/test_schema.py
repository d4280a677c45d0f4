"""Whatever the OpenAPI of a real server allows, and what it does not, is answered as it says: schemathesis asks.

No 5xx, no status and no content type that is not written there, bodies as written, and every error in the one shape. Right and
wrong requests alike: schemathesis makes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from server.api_server import Api, serving
from server.filled import filled

# Each of these looks at the whole host or store, in a process of its own; and they have no parameters.
_DEAR = frozenset({"doctor", "store_stats"})
_FEW, _SOME, _MANY = 1, 10, 150
_CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with filled() as home:
        # Tasks are taken on as often as asked and mostly wait: what they do is not looked at here.
        few = {"RELIVE_TASKS": "1", "RELIVE_TASKS_WAITING": "100000"}
        with serving(home.environment | few, "admin", "memory") as made:
            yield made


def _operations(api: Api) -> Iterator[Any]:
    schema = schemathesis.openapi.from_url(f"{api.address}/openapi.json")
    for found in schema.get_all_operations():
        yield found.ok()


def _ask(api: Api, operation: Any, mode: GenerationMode, examples: int) -> None:
    """Send so many requests of one operation, and check each answer."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
    )
    def ask(case: Case) -> None:
        answer = case.call(headers={"Authorization": f"Bearer {api.token}"}, timeout=30)
        case.validate_response(answer, checks=_CHECKS)
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert set(error) == {"code", "message", "cause", "remedy"}, error
            assert error["code"] and error["message"]

    ask()


def _wrong(api: Api, examples: int) -> Iterator[str]:
    """What was answered otherwise than written, by operation."""
    for operation in _operations(api):
        if operation.definition.raw["operationId"] in _DEAR and examples < _MANY:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _ask(api, operation, mode, examples)
            except Unsatisfiable:  # nothing can be wrong in a request that has no parts
                assert mode is GenerationMode.NEGATIVE
            except Exception as error:  # all operations are asked, and all that is wrong is told
                yield f"{operation.label} {mode}: {error!r} {getattr(error, 'exceptions', '')}"


def test_every_answer_is_as_the_schema_says(api):
    assert list(_wrong(api, examples=_FEW)) == []


def _in_pages(api: Api) -> Iterator[tuple[str, bool, bool]]:
    """(path, it takes ``after``, it answers with ``next``) of all that is read."""
    told = api.get("/openapi.json")
    for path, methods in told["paths"].items():
        if "get" not in methods:
            continue
        taken = {one["name"] for one in methods["get"].get("parameters", [])}
        content = methods["get"]["responses"]["200"].get("content", {})
        named = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        given = told["components"]["schemas"].get(named, {}).get("properties", {})
        yield path, "after" in taken, "next" in given


def _row(page: dict[str, Any]) -> Any:
    """The one row of a page."""
    (row,) = next(value for value in page.values() if isinstance(value, list))
    return row


def test_lists_go_on_after_what_they_call_next(api):
    """Every list that comes in pages does so in the same way: what its ``next`` was asks, as ``after``, for other rows."""
    every = list(_in_pages(api))
    assert [path for path, takes, gives in every if takes != gives] == [
        "/divergence"
    ]  # whose "after" is a run
    lists = [path for path, takes, gives in every if takes and gives and "{" not in path]
    assert sorted(lists) == ["/audit", "/commits", "/incidents", "/runs", "/tasks"]
    for _ in range(2):
        api.post("/store/verifications", {})
    lists.remove("/runs")  # there are none
    for path in lists:
        first = api.get(path, limit=1)
        assert _row(api.get(path, limit=1, after=first["next"])) != _row(first), path


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_answer_of_many_is_as_the_schema_says(api):
    assert list(_wrong(api, examples=_MANY)) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scope", ["read", "operate", "memory", "admin"])
def test_every_answer_to_each_scope_is_as_the_schema_says(scope):
    """Not to ``host``: whatever the schema allows would then be done to this machine."""
    with filled() as home, serving(home.environment, scope) as api:
        assert list(_wrong(api, examples=_SOME)) == []
