"""What an agent does with the tools, over whichever transport: from the list of incidents to the verdict."""

from __future__ import annotations

import json
from typing import Any

from mcp import Client
from support.payments import Payments

__all__ = ["from_list_to_verdict", "refused", "value"]


async def value(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool answers, which must be no error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> Any:
    """The four parts of a tool's error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, (tool, result.content)
    text = result.content[0].text  # type: ignore[union-attr]
    error = json.loads(text[text.index("{") :])
    assert set(error) == {"code", "message", "cause", "remedy"}, error
    return error


async def from_list_to_verdict(client: Client, payments: Payments) -> None:
    """What an agent does, tool by tool."""
    listed = await value(client, "incidents", service=payments.name, search="KeyError")
    number = listed["items"][-1]["number"]
    assert number == payments.incident
    story = await value(client, "incident", number=number)
    assert story["exception"].startswith("builtins.")
    assert story["request"] == "POST /payments"
    assert story["failing_frame"]["locals"]
    frames = await value(client, "incident_frames", number=number, limit=1)
    assert frames["items"][0]["file"] == story["failing_frame"]["file"]
    assert frames["next"] == 1
    rows = await value(client, "incident_timeline", number=number, limit=3)
    assert len(rows["items"]) == 3
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, what: str | None) -> None:
        heard.append((done, total, what))

    replay = await client.call_tool("replay", {"what": str(number), "times": 2}, progress_callback=hear)
    assert not replay.is_error, replay.content
    assert replay.structured_content is not None
    verdicts = [run["verdict"]["kind"] for run in replay.structured_content["runs"]]
    # On a very slow machine the settlement thread may come in between once.
    assert len(verdicts) == 2 and "reproduced" in verdicts
    assert (2, 2, "replaying") in heard
    kept = (await value(client, "runs", incident=number))["items"][0]
    assert (kept["times"], kept["reproduced"]) == (2, verdicts.count("reproduced"))
    assert (await value(client, "run", number=kept["number"]))["replay"]["incident"] == number
