"""The official client, as an agent uses it: the payments incident from the list to the verdict, errors, pages, resources."""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from jsonschema import Draft202012Validator

from mcp import Client, MCPError, StdioServerParameters
from relive.config import Settings
from relive.mcp.server import make_server
from support.mcp_way import from_list_to_verdict, refused, value
from support.payments import Payments

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"


def stdio(payments: Payments) -> StdioServerParameters:
    return StdioServerParameters(command=str(RELIVE), args=["mcp", "--act"], env=payments.relive.environment)


Talk = Callable[[Client], Awaitable[None]]


@pytest.fixture(scope="module")
def agent(payments: Payments) -> Iterator[Callable[[Talk], None]]:
    """Has an agent talk with one ``relive mcp`` over its standard streams, as long as these tests last."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio(payments))) as client,
    ):
        yield lambda talk: portal.call(talk, client)


def test_from_list_to_verdict_over_stdio(agent, payments):
    async def talk(client: Client) -> None:
        await from_list_to_verdict(client, payments)

    agent(talk)


def test_every_schema_is_one_and_unknown_arguments_are_refused(payments):
    """A client checks results against the schemas; an argument that is left unread, an agent takes for obeyed."""

    async def talk() -> None:
        async with Client(make_server(payments.relive.settings)) as client:
            for tool in (await client.list_tools()).tools:
                for schema in (tool.input_schema, tool.output_schema):
                    Draft202012Validator.check_schema(schema)
                    for pattern in patterns_of(schema):
                        re.compile(pattern)
                assert tool.input_schema["additionalProperties"] is False, tool.name
                result = await client.call_tool(tool.name, {"nosuch": 3})
                assert result.is_error and "nosuch" in result.content[0].text, tool.name
            story = await value(client, "incident", number=payments.incident)
            detail = await value(client, "commit_detail", ref=story["before"])
            assert detail["id"] == story["before"]
            assert (await refused(client, "replay", what="1", ignore=["nonsense"]))["code"] == "usage"

    anyio.run(talk)


def patterns_of(schema: Any) -> Iterator[str]:
    """Of a schema, however deep."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for inner in schema.values():
            yield from patterns_of(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from patterns_of(inner)


def test_a_service_is_checked(agent, payments):
    async def talk(client: Client) -> None:
        assert (await value(client, "check", target=payments.name))["verdict"] == "whole"
        assert (await refused(client, "check", target="nobody"))["code"] == "target-unknown"

    agent(talk)


def test_a_branch_is_restored_looked_into_and_stopped(agent, payments):
    async def talk(client: Client) -> None:
        story = await value(client, "incident", number=payments.incident)
        branch = (await value(client, "restore", ref=story["before"]))["id"]
        told = await value(
            client,
            "exec",
            branch=branch,
            command=["sh", "-c", "echo out; echo err >&2; ls /proc | grep -c '^[0-9]'; exit 3"],
        )
        assert (told["status"], told["stdout"].split()[0], told["stderr"]) == (3, "out", "err\n")
        listed = (await value(client, "branches"))["items"]
        assert [one["facts"]["id"] for one in listed if one["is_alive"]] == [branch]
        assert (await refused(client, "stop_branches", branches=[payments.name]))["code"] == "branch-unknown"
        assert (await value(client, "stop_branches", branches=[branch]))["stopped"] == [branch]
        error = await refused(client, "exec", branch=branch, command=["true"])
        assert (error["code"], error["remedy"]) == ("branch-unknown", "`relive ps` lists branches")

    agent(talk)


def test_a_commit_is_looked_into_asked_and_compared(agent, payments):
    async def talk(client: Client) -> None:
        ref = (await value(client, "incident", number=payments.incident))["before"]
        state = await value(client, "inspect", ref=ref)
        assert state["processes"][0]["descriptors"]
        assert (await value(client, "evaluate", ref=ref, expression="6 * 7"))["text"] == "42"
        assert (await value(client, "diff", before=ref, after=ref))["memory"]["changed"] == 0
        assert (await refused(client, "evaluate", ref="nobody", expression="1"))["code"] == "ref-unknown"
        assert (await refused(client, "leaks", refs=[ref, ref, ref]))["code"] == "usage"

    agent(talk)


def test_a_failure_is_debugged_in_a_branch_of_its_own(agent, payments):
    """What an agent asks of the failing frame; nothing is left running, and no tool acts on the host."""

    async def talk(client: Client) -> None:
        names = {one.name for one in (await client.list_tools()).tools}
        assert not names & {"start_service", "push", "pull", "stop", "key_new"}
        told = await value(
            client,
            "debug",
            number=payments.incident,
            command=["p account_id + 1", "p type(self).__name__"],
        )
        assert [one["answer"].strip() for one in told["answers"]] == ["8", "'Ledger'"]
        listed = (await value(client, "branches"))["items"]
        assert told["branch"] not in [one["facts"]["id"] for one in listed if one["is_alive"]]

    agent(talk)


def test_errors_say_cause_and_remedy(agent, payments):
    async def talk(client: Client) -> None:
        assert (await refused(client, "incident", number=999))["code"] == "incident-unknown"
        assert (await refused(client, "commit", target="nobody"))["code"] == "target-unknown"
        assert (await refused(client, "replay", what="1", speed="quick"))["code"] == "usage"
        error = await refused(client, "replay", what="HEAD~1")
        assert error["remedy"]
        wrong = await client.call_tool("replay", {"times": 0, "what": "1"})
        assert wrong.is_error
        unknown = await client.call_tool("incident", {})
        assert unknown.is_error

    agent(talk)


def test_resources_and_prompts(agent, payments):
    async def talk(client: Client) -> None:
        listed = await client.read_resource("relive://incidents")
        assert f"relive://incidents/{payments.incident} payments" in listed.contents[0].text
        one = await client.read_resource(f"relive://incidents/{payments.incident}")
        assert json.loads(one.contents[0].text)["service"] == "payments"
        with pytest.raises(MCPError):
            await client.read_resource("relive://incidents/999")
        prompt = await client.get_prompt("what_failed_and_why", {"incident": "1"})
        assert "incident 1" in prompt.messages[0].content.text

    agent(talk)


def test_every_tool_says_what_it_does_gives_and_changes(tmp_path):
    async def look() -> None:
        settings = Settings(home=tmp_path)
        tools = {one.name: one for one in await make_server(settings, acts=True).list_tools()}
        assert all(one.description and one.output_schema and one.annotations for one in tools.values())
        looks = {name for name, one in tools.items() if one.annotations.read_only_hint}
        destroys = {name for name, one in tools.items() if one.annotations.destructive_hint}
        assert {"incidents", "incident", "doctor", "verify", "check"} <= looks
        assert destroys == {"exec", "rollback", "stop_branches"}
        usual = {one.name: one for one in await make_server(settings).list_tools()}
        assert looks <= usual.keys()  # an agent looks and goes back, as long as nobody says more
        assert usual.keys() - looks == {"replay", "reproduce", "try", "debug"}
        assert "keep" in tools["debug"].input_schema["properties"]
        assert "keep" not in usual["debug"].input_schema["properties"]
        assert tools["replay"].input_schema["properties"]["times"]["minimum"] == 1
        in_pages = {name for name, one in tools.items() if "next" in one.output_schema["properties"]}
        after = {name for name, one in tools.items() if "after" in one.input_schema["properties"]}
        assert in_pages == after - {"diff", "divergence"}  # whose "after" is a commit, or a run
        assert {"commits", "incidents", "incident_frames", "logs", "runs"} <= in_pages

    anyio.run(look)
