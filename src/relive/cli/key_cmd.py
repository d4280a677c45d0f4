"""``relive key``: the keys that sign, trust and seal commits."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.keys import (
    KeyListParams,
    SignerParams,
    StoreKey,
    StoreKeyFileParams,
    TrustParams,
    list_keys,
    make_store_key,
    rotate_signing_key,
    rotate_store_key,
    trust_signer,
)

__all__ = ["key"]

key = typer.Typer(help="Make, list, trust and change keys", no_args_is_help=True)
_FROM = {"source": ("--from",)}
_DIGITS = re.compile(r"[0-9a-fA-F]{64}")


@key.command("new")
@from_params(StoreKeyFileParams, words=_FROM)
def new(params: StoreKeyFileParams, as_json: AsJson = False) -> None:
    """Make the key that seals what is committed from now on

    It lies in `keys/store.key` below RELIVE_HOME; keep a copy elsewhere, for without it nothing that it sealed can be read.
    What was committed before stays as it is. From then on nothing is written unsealed, also when the key is lost.
    """
    terminal = Terminal(as_json=as_json)
    _report(terminal, make_store_key(load_settings(), params, terminal), "sealed with")


@key.command("rotate")
@from_params(StoreKeyFileParams, words=_FROM)
def rotate(params: StoreKeyFileParams, as_json: AsJson = False) -> None:
    """Seal with another key from now on; what was sealed before stays readable

    The old key moves to `keys/old`; keep it as long as a commit from before is kept.
    """
    terminal = Terminal(as_json=as_json)
    _report(terminal, rotate_store_key(load_settings(), params, terminal), "sealed with the new key")


def _report(terminal: Terminal, made: StoreKey, words: str) -> None:
    terminal.answer(made, made.store_key)
    terminal.status(f"What is committed from now on is {words} {made.store_key}.")


@key.command("rotate-signing")
@from_params(SignerParams)
def rotate_signing(params: SignerParams, as_json: AsJson = False) -> None:
    """Sign with another key from now on; what this host has signed stays accepted here

    Other hosts accept what is signed from now on only after `relive key trust` there with the line that is printed; they go
    on accepting the old key until its file in `keys/trusted` is removed.
    """
    terminal = Terminal(as_json=as_json)
    changed = rotate_signing_key(load_settings(), params, terminal)
    terminal.answer(changed, changed.signer)
    old = (
        f"the old key is not accepted any more; signed anew: {changed.signed_anew}"
        if params.disown
        else "the old key stays trusted"
    )
    terminal.status(f"What is committed from now on is signed with the new key; {old}.")
    terminal.hint("Run `relive key trust` with this line on the hosts that are to accept it.")


@key.command("list")
def list_(as_json: AsJson = False) -> None:
    """List this host's signer, the signers it trusts, and the names of its store keys

    No secret is shown. Give the signer's line to another host, for `relive key trust` there.
    """
    terminal = Terminal(as_json=as_json)
    found = list_keys(load_settings(), KeyListParams(), terminal)
    rows = [[one.kind.value, one.name, one.key] for one in found.keys]
    terminal.table(found.keys, ["kind", "name", "key"], rows, "")
    if not found.is_sealed:
        terminal.status("Commits are not sealed.")


@key.command("trust")
@from_params(TrustParams, arguments=("public_key",))
def trust(params: TrustParams, as_json: AsJson = False) -> None:
    """Accept commits that another host has signed

    Whoever holds that host's key can from then on give you commits that you run. `relive key list` shows it there. The public key
    may also be a file that holds the digits.
    """
    terminal = Terminal(as_json=as_json)
    params = params.model_copy(update={"public_key": _digits(params.public_key)})
    accepted = trust_signer(load_settings(), params, terminal)
    terminal.answer(accepted, accepted.key)
    terminal.status(f"Commits that {accepted.name} signed are accepted.")


def _digits(given: str) -> str:
    """Those of a file where the text is none itself and there is a file of that name that holds some."""
    if not _DIGITS.fullmatch(given):
        try:
            held = Path(given).read_text(errors="replace").strip()
        except (OSError, ValueError):
            return given
        return held if _DIGITS.fullmatch(held) else given
    return given
