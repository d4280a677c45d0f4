"""Where secrets stand in clear: looked for by value in files and texts, in whatever way they are written or packed there."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import zstandard

__all__ = ["found_in", "leaks_below"]

_DEEPEST = 3  # packed in packed in packed
_ENCODED = re.compile(rb"[A-Za-z0-9+/_-]{24,}={0,2}")
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08"


def _forms(secret: str) -> set[bytes]:
    """As it is, percent-encoded, as in JSON (and in JSON in JSON), in hexadecimal, and in base64 wherever it begins there."""
    raw = secret.encode()
    quoted = json.dumps(secret)[1:-1]
    forms = {raw, quote(secret, safe="").encode(), quoted.encode(), json.dumps(quoted)[1:-1].encode()}
    forms.add(raw.hex().encode())
    for before in range(3):
        packed = base64.b64encode(b"\0" * before + raw)
        # The first and last characters hold bits of what stands before and behind.
        forms.add(packed[4 if before else 0 : len(packed) // 4 * 4 - 4])
    return forms


def found_in(data: bytes, secrets: Mapping[str, str]) -> set[str]:
    """Names of the secrets that stand in some bytes, or in what is packed in them."""
    pieces = list(_unpacked(data, _DEEPEST))
    return {
        name
        for name, secret in secrets.items()
        if any(form in one for form in _forms(secret) for one in pieces)
    }


def _unpacked(data: bytes, depth: int) -> Iterator[bytes]:
    yield data
    if depth == 0:
        return
    for at in _places(data, _ZSTD):
        try:
            yield from _unpacked(
                zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data[at:])).read(), depth - 1
            )
        except zstandard.ZstdError:
            continue
    for at in _places(data, _GZIP):
        try:
            yield from _unpacked(zlib.decompressobj(31).decompress(data[at:]), depth - 1)
        except zlib.error:
            continue
    for match in _ENCODED.finditer(data):
        text = match[0].rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        plain = base64.b64decode(text[: len(text) // 4 * 4])
        if _ZSTD in plain or _GZIP in plain:
            yield from _unpacked(plain, depth - 1)


def _places(data: bytes, magic: bytes) -> Iterator[int]:
    at = data.find(magic)
    while at >= 0:
        yield at
        at = data.find(magic, at + 1)


def leaks_below(home: Path, secrets: Mapping[str, str], left_out: Iterable[str]) -> dict[str, set[str]]:
    """Files below a directory in which secrets stand: (path within it: names of the secrets).

    Args:
        left_out: regular expressions of paths within it that are not looked at.
    """
    skipped = re.compile("|".join(left_out) or r"(?!)")
    found: dict[str, set[str]] = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if skipped.match(name) or path.is_symlink() or not path.is_file():
            continue
        names = found_in(path.read_bytes(), secrets) | found_in(name.encode(), secrets)
        if names:
            found[name] = names
    return found
