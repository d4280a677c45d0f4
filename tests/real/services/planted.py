"""The secrets that ``secretive.py`` handles, each by the place where it first stands; and what looks like one and is none.

Values are made of their names, so that the service, its clients and the test know them, and no file has to hold them.
"""

from __future__ import annotations

import base64
import hashlib
import json

__all__ = ["CODE_PATTERN", "CONTROLS", "SECRETS"]

CODE_PATTERN = "zz-[0-9a-f]{16}"


def _made(name: str, length: int = 20) -> str:
    """Letters and digits, at least one of each."""
    digest = hashlib.blake2b(name.encode(), key=b"planted").digest()
    return ("q7" + base64.b32encode(digest).decode().lower().rstrip("="))[:length]


def _upper(name: str, length: int) -> str:
    return _made(name, length).upper()


def _pem() -> str:
    body = base64.b64encode(hashlib.blake2b(b"pem").digest() * 4).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])


def _jwt() -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "ada", "id": _made("jwt")})
    texts = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts]
    return ".".join([*texts, _made("jwt signature", 43)])


def _card() -> str:
    number = "453201511283036"
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in number[::-2])
    return number + str(-(doubled + sum(int(digit) for digit in number[-2::-2])) % 10)


_BY_NAME = (
    *("command-two-words", "command-equals", "command-configured", "command-url"),
    *("environment-api-key", "environment-pgpw", "environment-pass", "environment-passwd"),
    *("environment-configured", "environment-url", "environment-aws"),
    *("query-token", "query-configured", "header-bearer", "header-basic", "header-cookie", "header-key"),
    *(
        "header-configured",
        "json-password",
        "json-nested",
        "form-password",
        "multipart-field",
        "gzip-password",
    ),
    *("redis-key", "redis-field", "redis-hash", "redis-set"),
    *("sql-column", "sql-parameter", "sql-literal"),
    *("log-pair", "log-bearer", "local-name", "local-key", "local-attribute", "exception-url"),
    *("out-header", "out-token", "out-cookie", "answer-token", "answer-cookie", "late", "file"),
)
_BY_SHAPE = {
    "environment-shape": "ghp_" + _made("environment-shape", 36),
    "gzip-pattern": "zz-" + hashlib.blake2b(b"code", digest_size=8).hexdigest(),
    "card": _card(),
    "shape-jwt": _jwt(),
    "shape-pem": _pem(),
    "shape-aws": "AKIA" + _upper("aws", 16),
    "shape-github": "ghp_" + _made("github", 36),
    "shape-slack": "xoxb-123456789012-1234567890123-" + _made("slack", 24),
    "shape-stripe": "sk_live_" + _made("stripe", 24),
    "shape-google": "AIza" + _made("google", 35),
    "shape-gitlab": "glpat-" + _made("gitlab", 20),
    "shape-npm": "npm_" + _made("npm", 36),
    "shape-sendgrid": "SG." + _made("mail", 22) + "." + _made("grid", 43),
    "shape-anthropic": "sk-ant-api03-" + _made("model", 40),
}
SECRETS: dict[str, str] = {**{name: _made(name) for name in _BY_NAME}, **_BY_SHAPE}
"""By place; 57."""
CONTROLS = {
    "order": "6f1c2d3e-0b4a-4c5d-8e6f-7a8b9c0d1e2f",
    "revision": "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "mail": "ada@shop.example",
    "sentence": "wrong password for user ada",
    "passenger": "ada-lovelace",
    "compass": "north-by-north-west",
    "keyboard": "qwertz-layout",
    "monkey": "capuchin-in-a-tree",
    "milliseconds": "1732300000123",
    "encoded": base64.b64encode(b"nothing but a sentence, twice as long").decode(),
    "author": "Grace-Hopper-1952",
    "path": "/srv/shop/passages/keynote.html",
}
"""By the name of the field in which they are sent; each is to be seen as it is."""
