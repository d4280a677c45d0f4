"""``relive key``: the keys that sign, trust and seal commits."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import STORE_KEY, given_store_keys, load_settings
from relive.errors import KeyMissing, UsageError
from relive.maintenance.signers import change_signer
from relive.store import Store
from relive.store.keyring import OWN_BEFORE, Keyring
from relive.store.pages.sealing import key_name

__all__ = ["key"]

key = typer.Typer(help="Make, list, trust and change keys", no_args_is_help=True)
_PUBLIC = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Take the key from this file of 32 bytes (- for stdin) instead of making one"
    ),
]


@key.command("new")
def new(source: KeyFile = None, as_json: AsJson = False) -> None:
    """Make the key that seals what is committed from now on

    It lies in `keys/store.key` below RELIVE_HOME; keep a copy elsewhere, for without it nothing that it sealed can be read.
    What was committed before stays as it is. From then on nothing is written unsealed, also when the key is lost.
    """
    terminal = Terminal(as_json=as_json)
    store = Store(load_settings().store)
    keyring = store.anatomy.keyring
    if source is not None:
        keyring.take_store_key(_key_from(source))
    elif not keyring.is_given and keyring.store_key() is not None:
        raise UsageError("there is a store key already", remedy="`relive key rotate` changes it")
    elif store.anatomy.format.noted_key is not None:
        raise KeyMissing(
            "the store is sealed with a key that is not there",
            cause=f"the store knows the key {store.anatomy.format.noted_key}",
            remedy="put that one there: `relive key new --from FILE`",
        )
    else:
        keyring.make_store_key()
    _say(terminal, store, "sealed with")


@key.command("rotate")
def rotate(source: KeyFile = None, as_json: AsJson = False) -> None:
    """Seal with another key from now on; what was sealed before stays readable

    The old key moves to `keys/old`; keep it as long as a commit from before is kept.
    """
    terminal = Terminal(as_json=as_json)
    store = Store(load_settings().store)
    store.anatomy.keyring.rotate_store_key(_key_from(source) if source is not None else None)
    _say(terminal, store, "sealed with the new key")


@key.command("rotate-signing")
def rotate_signing(
    disown: Annotated[
        bool,
        typer.Option(
            "--disown",
            help="Sign what is here anew, and accept the old key no more: for when somebody has got hold of it",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sign with another key from now on; what this host has signed stays accepted here

    Other hosts accept what is signed from now on only after `relive key trust` there with the line that is printed; they go
    on accepting the old key until its file in `keys/trusted` is removed.
    """
    terminal = Terminal(as_json=as_json)
    fresh, count = change_signer(Store(load_settings().store), disown=disown)
    terminal.answer({"signer": fresh.hex(), "signed_anew": count}, fresh.hex())
    old = (
        f"the old key is not accepted any more; signed anew: {count}"
        if disown
        else "the old key stays trusted"
    )
    terminal.status(f"What is committed from now on is signed with the new key; {old}.")
    terminal.hint("Run `relive key trust` with this line on the hosts that are to accept it.")


def _say(terminal: Terminal, store: Store, words: str) -> None:
    """Note the key in the store, so that nothing is written without it, and tell its name."""
    with store.nothing_dropped():
        store.anatomy.format.make_writable()
    name = store.anatomy.format.noted_key or ""
    terminal.answer({"store_key": name}, name)
    terminal.status(f"What is committed from now on is {words} {name}.")


@key.command("list")
def list_(as_json: AsJson = False) -> None:
    """List this host's signer, the signers it trusts, and the names of its store keys

    No secret is shown. Give the signer's line to another host, for `relive key trust` there.
    """
    terminal = Terminal(as_json=as_json)
    store = Store(load_settings().store)
    keyring = store.anatomy.keyring
    store_key, noted = keyring.store_key(), store.anatomy.format.noted_key
    found = [{"kind": "signer", "name": socket.gethostname(), "key": keyring.public_key.hex()}]
    found += [{"kind": "trusted", "name": name, "key": one.hex()} for name, one in keyring.trusted().items()]
    if store_key is not None:
        name = STORE_KEY if keyring.is_given else "store.key"
        found.append({"kind": "store key", "name": name, "key": key_name(store_key)})
    given = list(map(key_name, given_store_keys()))[1:]
    old = sorted(map(key_name, keyring.old_store_keys()))
    found += [
        {"kind": "old store key", "name": STORE_KEY if one in given else f"old/{one}.key", "key": one}
        for one in old
    ]
    if noted is not None and (store_key is None or noted not in (key_name(store_key), *old)):
        found.append({"kind": "missing store key", "name": "-", "key": noted})
    rows = [[one["kind"], one["name"], one["key"]] for one in found]
    terminal.table(found, ["kind", "name", "key"], rows, "")
    if store_key is None and noted is None:
        terminal.status("Commits are not sealed.")


@key.command("trust")
def trust(
    public_key: Annotated[
        str,
        typer.Argument(help="The signer of another host: 64 hexadecimal digits, or a file that holds them"),
    ],
    name: Annotated[str | None, typer.Option("--name", help="What to call it; else its first digits")] = None,
    as_json: AsJson = False,
) -> None:
    """Accept commits that another host has signed

    Whoever holds that host's key can from then on give you commits that you run. `relive key list` shows it there.
    """
    terminal = Terminal(as_json=as_json)
    text = public_key
    if not _PUBLIC.fullmatch(text):
        try:
            text = Path(text).read_text(errors="replace").strip()
        except OSError:
            text = ""
        if not _PUBLIC.fullmatch(text):
            raise UsageError(
                f"{public_key!r} is no public key",
                cause="it is neither 64 hexadecimal digits nor a file that holds them",
                remedy="run `relive key list` on the other host and give the signer's line",
            )
    name = name if name is not None else text[:10].lower()
    if not _NAME.fullmatch(name) or name.startswith(OWN_BEFORE):
        raise UsageError(
            f"{name!r} cannot be a signer's name",
            cause=f"names with {OWN_BEFORE!r} are for keys of this host"
            if name.startswith(OWN_BEFORE)
            else None,
            remedy="use letters, digits, dot, dash, underscore",
        )
    Keyring(load_settings().home / "keys").trust(name, bytes.fromhex(text))
    terminal.answer({"name": name, "key": text.lower()}, text.lower())
    terminal.status(f"Commits that {name} signed are accepted.")


def _key_from(source: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
    except OSError as error:
        raise UsageError(f"--from: {source} cannot be read", cause=error.strerror) from error
