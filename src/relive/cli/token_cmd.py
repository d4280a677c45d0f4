"""``relive token``: who may ask the server for what."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import when
from relive.server.credentials import Scope, Token, Tokens
from relive.server.durations import parse_lifetime

__all__ = ["token"]

token = typer.Typer(help="Make, list and revoke tokens of the server", no_args_is_help=True)


@token.command("create")
def create(
    name: Annotated[str, typer.Option("--name", help="Whom or what it is for; it stands in the audit log")],
    scope: Annotated[
        list[Scope],
        typer.Option(
            "--scope",
            help="read; operate: commit, restore, replay; memory: see what processes had in memory; admin: audit; "
            "host: start programs, change keys, name remotes and files, as the server's user",
        ),
    ],
    expires: Annotated[
        str, typer.Option("--expires", help="When it ends: 30m, 12h, 90d, 4w, or never")
    ] = "90d",
    as_json: AsJson = False,
) -> None:
    """Make a token, and show it this once

    Scopes add up. Each implies read, admin implies operate; memory and host are implied by none.
    """
    terminal = Terminal(as_json=as_json)
    lifetime = parse_lifetime(expires)
    with Tokens(load_settings().server) as tokens:
        made, text = tokens.create(name, scope, lifetime=lifetime)
    terminal.answer({**_facts(made), "token": text}, text)
    until = f"until {when(made.expires_ns)}" if made.expires_ns is not None else "until it is revoked"
    terminal.status(f"{made.name} ({made.id}) is valid {until}. The token is not shown again.")


@token.command("list")
def list_(as_json: AsJson = False) -> None:
    """List tokens, also those that are not valid any more; the tokens themselves are not known"""
    terminal = Terminal(as_json=as_json)
    with Tokens(load_settings().server) as tokens:
        found = tokens.all()
    facts = [_facts(one) for one in found]
    rows = [
        [
            one.id,
            one.name,
            ", ".join(one.scopes),
            fact["state"],
            _when(one.expires_ns),
            _when(one.last_used_ns),
        ]
        for one, fact in zip(found, facts, strict=True)
    ]
    columns = ["id", "name", "scopes", "state", "expires", "last used"]
    terminal.table(facts, columns, rows, "There are no tokens.")


@token.command("revoke")
def revoke(
    which: Annotated[str, typer.Argument(metavar="ID|NAME", help="The token's id, or its name")],
    as_json: AsJson = False,
) -> None:
    """End a token at once, in every server on this RELIVE_HOME"""
    terminal = Terminal(as_json=as_json)
    with Tokens(load_settings().server) as tokens:
        ended = tokens.revoke(which)
    terminal.answer(_facts(ended), ended.id)
    terminal.status(f"{ended.name} opens nothing any more.")


def _facts(one: Token) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "scopes": [scope.value for scope in one.scopes],
        "state": one.state(time.time_ns()).value,
        "created_ns": one.created_ns,
        "expires_ns": one.expires_ns,
        "revoked_ns": one.revoked_ns,
        "last_used_ns": one.last_used_ns,
    }


def _when(wall_ns: int | None) -> str:
    return "-" if wall_ns is None else when(wall_ns)
