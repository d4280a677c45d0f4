"""The keys of this host: which signs commits, which signers it trusts, which keys seal what is committed.

No secret is in params or results: params may be kept with tasks and stand in logs. A key that somebody brings along is read
from a file, and only the CLI may name one.
"""

from __future__ import annotations

import re
import socket
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from relive.config import STORE_KEY, Settings, given_store_keys
from relive.errors import KeyMissing, UsageError
from relive.maintenance.signers import change_signer
from relive.model.token_scope import Scope
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.store import Store
from relive.store.keyring import OWN_BEFORE, Keyring
from relive.store.pages.sealing import key_name

__all__ = [
    "KEY_LIST",
    "KEY_NEW",
    "KEY_ROTATE",
    "KEY_ROTATE_SIGNING",
    "KEY_TRUST",
    "Key",
    "KeyKind",
    "KeyListParams",
    "Keys",
    "SignerChanged",
    "SignerParams",
    "StoreKey",
    "StoreKeyFileParams",
    "StoreKeyParams",
    "TrustParams",
    "Trusted",
    "list_keys",
    "make_store_key",
    "rotate_signing_key",
    "rotate_store_key",
    "trust_signer",
]

_PUBLIC = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ON_THE_HOST = frozenset({Scope.HOST})


class StoreKeyParams(Params):
    """A key that seals is made by this host."""


class StoreKeyFileParams(StoreKeyParams):
    """As the CLI has it: the key may be brought along."""

    source: Path | None = Field(
        default=None,
        description="Take the key from this file of 32 bytes (- for stdin) instead of making one",
    )


class StoreKey(Result):
    """``store_key``: the name of the key that seals from now on, a digest of it."""

    store_key: str


def make_store_key(settings: Settings, params: StoreKeyParams, _progress: Progress) -> StoreKey:
    """Make the key that seals what is committed from now on, or take one from a file.

    Raises:
        UsageError: there is one already, or the file holds none.
        KeyMissing: the store is sealed with one that is not there.
    """
    store = Store(settings.store)
    keyring = store.internals.keyring
    brought = _brought(params)
    if brought is not None:
        keyring.adopt_store_key(brought)
    elif not keyring.is_given and keyring.store_key() is not None:
        raise UsageError("there is a store key already", remedy="`relive key rotate` changes it")
    elif store.internals.format.noted_key is not None:
        raise KeyMissing(
            "the store is sealed with a key that is not there",
            cause=f"the store knows the key {store.internals.format.noted_key}",
            remedy="put that one there: `relive key new --from FILE`",
        )
    else:
        keyring.make_store_key()
    return _noted(store)


def rotate_store_key(settings: Settings, params: StoreKeyParams, _progress: Progress) -> StoreKey:
    """Seal with another key from now on; what was sealed before stays readable. Raises UsageError, KeyMissing."""
    store = Store(settings.store)
    store.internals.keyring.rotate_store_key(_brought(params))
    return _noted(store)


def _brought(params: StoreKeyParams) -> bytes | None:
    if not isinstance(params, StoreKeyFileParams) or params.source is None:
        return None
    source = Path("/dev/stdin") if str(params.source) == "-" else params.source
    try:
        return source.read_bytes()
    except OSError as error:
        raise UsageError(f"--from: {params.source} cannot be read", cause=error.strerror) from error


def _noted(store: Store) -> StoreKey:
    """Note the key in the store, so that nothing is written without it."""
    with store.nothing_dropped():
        store.internals.format.make_writable()
    return StoreKey(store_key=store.internals.format.noted_key or "")


KEY_NEW = Operation(
    "key-new",
    StoreKeyParams,
    StoreKey,
    make_store_key,
    Faces(
        cli=("key new",),
        rest=Route(
            "POST",
            "/keys/store",
            _ON_THE_HOST,
            "Make the key that seals what is committed from now on; it stays on the host",
        ),
        mcp=Tool(
            Effect.ADDS,
            "Make the key that seals what is committed from now on. It stays on the host, which needs a copy elsewhere.",
            is_for_host=True,
        ),
        only=(
            Only(
                ("source",),
                frozenset({Face.CLI}),
                "a key must not travel, or be kept with a request",
            ),
        ),
    ),
)
KEY_ROTATE = Operation(
    "key-rotate",
    StoreKeyParams,
    StoreKey,
    rotate_store_key,
    Faces(
        cli=("key rotate",),
        rest=Route(
            "POST",
            "/keys/store/rotations",
            _ON_THE_HOST,
            "Seal with another key from now on; what was sealed before stays readable",
        ),
        mcp=Tool(
            Effect.ADDS,
            "Seal with another key from now on; what was sealed before stays readable.",
            is_for_host=True,
        ),
        only=(
            Only(
                ("source",),
                frozenset({Face.CLI}),
                "a key must not travel, or be kept with a request",
            ),
        ),
    ),
)


class SignerParams(Params):
    """What becomes of the key that signed until now."""

    disown: bool = Field(
        default=False,
        description="Sign what is here anew, and accept the old key no more: for when somebody has got hold of it",
    )


class SignerChanged(Result):
    """``signer``: the new public key, in hexadecimal digits; ``signed_anew``: how many commits."""

    signer: str
    signed_anew: int


def rotate_signing_key(settings: Settings, params: SignerParams, _progress: Progress) -> SignerChanged:
    """Sign with another key from now on; raises StoreError."""
    fresh, count = change_signer(Store(settings.store), disown=params.disown)
    return SignerChanged(signer=fresh.hex(), signed_anew=count)


KEY_ROTATE_SIGNING = Operation(
    "key-rotate-signing",
    SignerParams,
    SignerChanged,
    rotate_signing_key,
    Faces(
        cli=("key rotate-signing",),
        rest=Route(
            "POST", "/keys/signer/rotations", _ON_THE_HOST, "Sign with another key from now on", is_task=True
        ),
        mcp=Tool(
            Effect.DESTROYS,
            "Sign with another key from now on. Other hosts accept that only once they trust it.",
            is_for_host=True,
        ),
    ),
)


class KeyKind(StrEnum):
    """What a key is for, and whether it is there."""

    SIGNER = "signer"
    TRUSTED = "trusted"
    STORE = "store key"
    OLD_STORE = "old store key"
    MISSING_STORE = "missing store key"


class Key(Result):
    """``name``: whose it is, or where it lies; ``key``: a public key, or the digest of one that seals."""

    kind: KeyKind
    name: str
    key: str


class KeyListParams(Params):
    """Nothing can be chosen."""


class Keys(Result):
    """``is_sealed``: what is committed now is sealed, or must be."""

    keys: list[Key]
    is_sealed: bool


def list_keys(settings: Settings, _params: KeyListParams, _progress: Progress) -> Keys:
    """This host's signer, the signers it trusts, and the names of its store keys; no secret. Raises StoreError."""
    store = Store(settings.store)
    keyring = store.internals.keyring
    store_key, noted = keyring.store_key(), store.internals.format.noted_key
    found = [Key(kind=KeyKind.SIGNER, name=socket.gethostname(), key=keyring.public_key.hex())]
    found += [Key(kind=KeyKind.TRUSTED, name=name, key=one.hex()) for name, one in keyring.trusted().items()]
    if store_key is not None:
        name = STORE_KEY if keyring.is_given else "store.key"
        found.append(Key(kind=KeyKind.STORE, name=name, key=key_name(store_key)))
    given = list(map(key_name, given_store_keys()))[1:]
    old = sorted(map(key_name, keyring.old_store_keys()))
    found += [
        Key(kind=KeyKind.OLD_STORE, name=STORE_KEY if one in given else f"old/{one}.key", key=one)
        for one in old
    ]
    if noted is not None and (store_key is None or noted not in (key_name(store_key), *old)):
        found.append(Key(kind=KeyKind.MISSING_STORE, name="-", key=noted))
    return Keys(keys=found, is_sealed=store_key is not None or noted is not None)


KEY_LIST = Operation(
    "key-list",
    KeyListParams,
    Keys,
    list_keys,
    Faces(
        cli=("key list",),
        rest=Route(
            "GET", "/keys", _ON_THE_HOST, "This host's signer, whom it trusts, and names of its store keys"
        ),
        mcp=Tool(
            Effect.READS,
            "This host's signer, the signers it trusts, and the names of its store keys; no secrets.",
            is_for_host=True,
        ),
    ),
)


class TrustParams(Params):
    """Whose commits are accepted."""

    public_key: str = Field(description="The signer of another host: 64 hexadecimal digits")
    name: str | None = Field(default=None, description="What to call it; else its first digits")


class Trusted(Result):
    """A signer whose commits are accepted from now on."""

    name: str
    key: str


def trust_signer(settings: Settings, params: TrustParams, _progress: Progress) -> Trusted:
    """Accept commits that another host has signed; raises UsageError."""
    if not _PUBLIC.fullmatch(params.public_key):
        raise UsageError(
            f"{params.public_key!r} is no public key",
            cause="it is neither 64 hexadecimal digits nor a file that holds them",
            remedy="run `relive key list` on the other host and give the signer's line",
        )
    key = params.public_key.lower()
    name = params.name if params.name is not None else key[:10]
    if not _NAME.fullmatch(name) or name.startswith(OWN_BEFORE):
        raise UsageError(
            f"{name!r} cannot be a signer's name",
            cause=f"names with {OWN_BEFORE!r} are for keys of this host"
            if name.startswith(OWN_BEFORE)
            else None,
            remedy="use letters, digits, dot, dash, underscore",
        )
    Keyring(settings.home / "keys").trust(name, bytes.fromhex(key))
    return Trusted(name=name, key=key)


KEY_TRUST = Operation(
    "key-trust",
    TrustParams,
    Trusted,
    trust_signer,
    Faces(
        cli=("key trust",),
        rest=Route("POST", "/keys/trusted", _ON_THE_HOST, "Accept commits that another host has signed"),
        mcp=Tool(
            Effect.ADDS,
            "Accept commits that another host has signed: whoever holds its key can give you commits that you run.",
            is_for_host=True,
        ),
    ),
)
