"""Taking secrets out of what is recorded, by value: wherever a known secret stands, its placeholder stands instead.

A value becomes a secret by where it was seen (an environment variable, header, parameter, JSON or form field whose name looks
like a credential or was configured; a cookie; the password in a URL; what follows ``Basic`` and ``Bearer``), or by what it
looks like (a configured pattern, a card number that its check digit confirms). It is found again as it is, in UTF-8,
percent-encoded, escaped as in JSON, and in base64 where that is packed bytes or a ``Basic`` token.

The placeholder ``<secret:XXXXXXXX>`` holds 8 hex digits of a keyed hash: the same secret gives the same placeholder, in this
process, its forks and its replays (the key lies in the memory that is committed), and nobody can try out guesses without that key.

Limits: secrets of the environment and of the configuration are remembered for good, of others the last 128; shorter ones than 6
characters are only replaced where their name told that they are secret.
"""

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Pattern, Tuple

__all__ = ["Scrubber", "check_with", "is_credential_name"]

# Makes of (hints, forms, sure) what knows in no time of most texts that no secret is in them (see ``quick``); None without.
_checker_kind: Any = None


def check_with(kind: Any) -> None:
    """Have texts looked through by that first, or by nothing (None). For scrubbers that are made from now on."""
    global _checker_kind
    _checker_kind = kind


class _Pattern:
    """A regular expression that is compiled when it is first used: all of them together take milliseconds of each start."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._text, self._flags)
        for method in ("finditer", "fullmatch", "match", "search", "sub"):
            self.__dict__[method] = getattr(compiled, method)
        return self.__dict__[name]


_NAMES = _Pattern(
    r"pass(word|wd|phrase)?$|passw|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|"
    r"^cookie$|^set-cookie$|x-amz-security|session[-_]?(id|key)|signature|\bdsn\b|encryption[-_]?key",
    re.IGNORECASE,
)
# Nothing has a name as above without one of these in it: searching for them is far cheaper.
_HINTS = ("pass", "secret", "token", "key", "credential", "auth", "cookie", "session", "signature", "dsn")
# Cards begin with 2 to 6: times in milliseconds, ids that begin with zeros and most other long numbers do not. Begins with a plain
# class of characters, which is what the search is fast for; what stands before is looked at later.
_CARD = _Pattern(r"[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
# How many digits a card has, by its first one; of others 16.
_CARD_DIGITS = {"3": (14, 15, 16), "4": (13, 16, 19), "6": (16, 17, 18, 19)}
_URL_PASSWORD = _Pattern(r"(?<=://)([^/@:\s]*):([^/@\s]+)(?=@)")
_JSON_FIELD = _Pattern(r'"([^"\\]{1,64})("\s*:\s*")((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED_FIELD = _Pattern(
    r'"([^"\\]{1,64})(\\"\s*:\s*\\")((?:[^"\\]|\\[^"])*)\\"', re.DOTALL
)  # JSON in a text of JSON
_FORM_FIELD = _Pattern(r"([A-Za-z0-9_.%\[\]-]{1,64})(=)([^&\s;,'\"<>)}\]]+)")
_NAME_BEFORE = _Pattern(r"[A-Za-z0-9_.%\[\]-]*\Z")
_SCHEME = _Pattern(r"\b(Basic|Bearer)(\s+)([A-Za-z0-9._~+/=-]{4,})", re.IGNORECASE)
_PLACEHOLDER = _Pattern(r"<secret:[0-9a-f]{8}>")
_SHORTEST = 6  # [characters] shorter values stand in too many places by chance
_MOST = 4096  # secrets that are remembered for good
_RECENT = 128  # and those that are seen while the service runs: each is looked for in every text
_MEMORY = 2048  # names, headers and texts of which it is remembered what was made of them
_SHORT = 256  # [characters] only such texts are
_COOKIE_WORDS = frozenset(
    ("path", "domain", "expires", "max-age", "samesite", "priority", "version", "comment")
)


def _is_card(number: str) -> bool:
    """As long as its issuer's cards are (ISO/IEC 7812), and with a check digit that is right, which it is for one number in ten."""
    if len(number) not in _CARD_DIGITS.get(number[0], (16,)):
        return False
    digits = [int(one) for one in number]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + doubled) % 10 == 0


def is_credential_name(name: str) -> bool:
    """An environment variable, header or parameter of this name holds a secret."""
    low = name.lower()
    return any(hint in low for hint in _HINTS) and _NAMES.search(name) is not None


class Scrubber:
    """Knows the secrets that were seen. ``learn`` and ``text`` may be called by any thread.

    Attributes:
        checker: ``clean(text)`` tells whether no secret is in a text, where False says nothing; None: it is to be made again, as
            something was learned; False: there is none.
    """

    def __init__(self, patterns: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        self._key = os.urandom(16)
        self._patterns: List[Pattern[str]] = [re.compile(one) for one in patterns]
        self._names = {name.lower() for name in names}
        self._hints = (*_HINTS, *self._names)
        self._lasting: Dict[str, str] = {}
        self._recent: Dict[str, str] = {}
        # (a way in which a secret is written, its placeholder), longest first: one that holds another is taken as a whole.
        self._known: Tuple[Tuple[str, str], ...] = ()
        self._named: Dict[str, bool] = {}  # what is_secret_name said
        self._texts: Dict[Any, Any] = {}  # see ``made``
        self._checker_kind = _checker_kind
        self.checker: Any = None if _checker_kind is not None else False

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Remember for good the secrets among a process's environment variables."""
        for name, value in environment.items():
            if self.is_secret_name(name):
                self.learn(value, lasting=True)
            elif "://" in value:
                for found in _URL_PASSWORD.finditer(value):
                    self.learn(found[2], lasting=True)

    def is_secret_name(self, name: str) -> bool:
        """A value of this name is a secret, by its look or by configuration."""
        said = self._named.get(name)
        if said is None:
            said = name.lower() in self._names or is_credential_name(name)
            if len(self._named) < _MEMORY:
                self._named[name] = said
        return said

    def placeholder(self, secret: str) -> str:
        """What stands for it."""
        # Of the module that hashlib would take it from: hashlib itself brings OpenSSL with it, which takes milliseconds.
        from _blake2 import blake2b

        digest = blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=4, key=self._key)
        return f"<secret:{digest.hexdigest()}>"

    def learn(self, value: str, *, lasting: bool = False) -> str:
        """Remember a value as a secret, and return its placeholder. Very short ones are replaced here only.

        A placeholder stands for itself: in a replay the service is handed one and may send it on.
        """
        known = self._lasting.get(value) or self._recent.get(value)
        if known is not None:
            return known
        if _PLACEHOLDER.fullmatch(value):
            return value
        placeholder = self.placeholder(value)
        if len(value) >= _SHORTEST:
            self._remember(value, placeholder, lasting)
        return placeholder

    def _remember(self, value: str, placeholder: str, lasting: bool) -> None:
        known = list(self._known)
        if lasting and len(self._lasting) < _MOST:
            self._lasting = {**self._lasting, value: placeholder}
        else:
            recent = {**self._recent, value: placeholder}
            if len(recent) > _RECENT:
                gone = recent.pop(next(iter(recent)))
                known = [pair for pair in known if pair[1] != gone]
            self._recent = recent
        known += [(form, placeholder) for form in _forms(value)]
        # Nearly in order already, which is what sorting is fastest for.
        self._known = tuple(sorted(known, key=_length, reverse=True))
        self._texts = {}  # after it: whoever made a text with what was known before puts it into the old one
        if self.checker:
            self.checker = None

    def named(self, name: str, value: str) -> str:
        """A value with a name: its placeholder if the name says that it is secret, else as ``text``."""
        if not value or not self.is_secret_name(name):
            return self.text(value)
        return self.header(name, value) if name.lower() in _HEADERS else self.learn(value)

    def header(self, name: str, value: str) -> str:
        """As ``named``, but of a header's value only what is secret: names of cookies and schemes are kept."""
        texts = self.made()
        made: Optional[str] = texts.get((name, value))
        if made is None:
            made = texts[name, value] = self._header(name, value)
        return made

    def made(self) -> Dict[Any, Any]:
        """Where callers keep what they made of texts that come again and again: it holds for as long as no secret is learned, then
        there is another one. Ask for it before the making. Keys: tuples that begin with the caller's own word or a header's name;
        short texts only.
        """
        if len(self._texts) >= _MEMORY:
            self._texts = {}
        return self._texts

    def often(self, value: str) -> str:
        """As ``text``, for texts of which most come again and again: statements, names of commands."""
        if len(value) > _SHORT:
            return self.text(value)
        texts = self._texts
        made: Optional[str] = texts.get(value)
        if made is None:
            texts = self.made()
            made = texts[value] = self.text(value)
        return made

    def _header(self, name: str, value: str) -> str:
        low = name.lower()
        if low in ("cookie", "set-cookie"):
            pairs = value.split(";")
            return ";".join(
                self._cookie(pair, low == "set-cookie" and index > 0) for index, pair in enumerate(pairs)
            )
        if low in ("authorization", "proxy-authorization"):
            known = _SCHEME.fullmatch(value.strip())
            if known is not None:
                self._token(known)
                return f"{known[1]}{known[2]}{self.learn(known[3])}"
            scrubbed = self.text(value)
            return scrubbed if _PLACEHOLDER.search(scrubbed) else self.learn(value)
        return self.learn(value) if value and self.is_secret_name(low) else self.text(value)

    def _cookie(self, pair: str, is_attribute: bool) -> str:
        name, equals, value = pair.partition("=")
        if not value or (is_attribute and name.strip().lower() in _COOKIE_WORDS):
            return self.text(pair)
        inner = value.strip('"')
        return f"{name}{equals}{value.replace(inner, self.learn(inner)) if inner else value}"

    def text(self, value: str) -> str:
        """A text without the secrets in it."""
        checker = self.checker
        if checker is None:
            checker = self.make_checker()
        if checker and checker.clean(value):
            return value
        for secret, placeholder in self._known:
            if secret in value:
                value = value.replace(secret, placeholder)
        for pattern in self._patterns:
            value = pattern.sub(lambda found: self.placeholder(found[0]), value)
        if "://" in value:
            value = _URL_PASSWORD.sub(lambda found: f"{found[1]}:{self.learn(found[2])}", value)
        low = value.lower()
        if "basic" in low or "bearer" in low:
            value = _SCHEME.sub(self._token, value)
            low = value.lower()
        if ":" in value or "=" in value:
            for hint in self._hints:
                if hint in low:
                    value = self._fields(value, low)
                    break
        return _CARD.sub(self._card, value) if len(value) >= 13 else value

    def make_checker(self) -> Any:
        """Make ``checker`` for what is known now, where there is a kind of it."""
        while True:
            known = self._known
            checker = self._checker_kind(self._hints, tuple([form for form, _ in known]), not self._patterns)
            self.checker = checker
            if self._known is known:  # else another thread learned something meanwhile
                return checker
            self.checker = None

    def _token(self, found: Any) -> str:
        token = found[3]
        if found[1].lower() == "basic":
            from binascii import Error, a2b_base64

            try:
                _, colon, password = a2b_base64(token).decode("utf-8").partition(":")
            except (Error, ValueError):
                return str(found[0])  # the word "basic" in a sentence
            if colon and password:
                self.learn(password)
        elif not any(one.isdigit() for one in token) and len(token) < 20:
            return str(found[0])  # and "bearer"
        return f"{found[1]}{found[2]}{self.learn(token)}"

    def _fields(self, value: str, low: str) -> str:
        """A text without the values of fields that have secret names. Looks only where such a name may be."""
        parts: List[str] = []
        done = 0
        for spot in _spots(low if len(low) == len(value) else value, self._hints):
            if spot < done:
                continue
            found = _field_at(value, spot)
            if found is not None and found.start() >= done and self.is_secret_name(found[1]):
                parts += (value[done : found.start(3)], self.learn(_unescaped(found)))
                done = found.end(3)
        return "".join(parts) + value[done:] if parts else value

    def is_clean(self, texts: List[str]) -> bool:
        """No secret stands in any of them; looks at all of them at once. May say False where there is none either."""
        if self._patterns:  # one that is tied to a text's beginning would not be found
            return False
        whole = "\n".join(texts)
        return self.text(whole) == whole

    def _card(self, found: Any) -> str:
        text, whole = found.string, found[0]
        begin, end = found.start(), found.end()
        if begin and (
            text[begin - 1].isalnum() or text[begin - 1] == "_"
        ):  # the end of a longer number, or of a name
            return str(whole)
        if (
            begin > 1 and text[begin - 1] == "." and text[begin - 2].isdigit()
        ):  # what stands behind a decimal point
            return str(whole)
        if end < len(text) and (text[end].isalpha() or text[end] == "_"):
            return str(whole)
        return (
            self.placeholder(whole)
            if _is_card("".join(one for one in whole if one.isdigit()))
            else str(whole)
        )

    def data(self, value: bytes) -> bytes:
        """Bytes without the secrets in them; what is no UTF-8 is searched byte by byte all the same."""
        if not value:
            return value
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return self._bytes(value)
        scrubbed = self.text(text)
        return value if scrubbed == text else scrubbed.encode("utf-8", "replace")

    def _bytes(self, value: bytes) -> bytes:
        for secret, placeholder in self._known:
            raw = secret.encode("utf-8", "surrogatepass")
            if raw in value:
                value = value.replace(raw, placeholder.encode("ascii"))
        text = value.decode("latin-1")
        scrubbed = self.text(text)
        return value if scrubbed == text else scrubbed.encode("latin-1", "replace")

    def packed(self, value: Any) -> Any:
        """A tree of JSON values (see ``values``) with every text in it scrubbed, that of packed bytes too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.packed(item) for item in value]
        if isinstance(value, dict):
            typed = value.get("$")
            if isinstance(typed, list) and len(typed) > 1:
                return self._typed(value, typed)
            return {
                key: self.named(key, item) if isinstance(item, str) else self.packed(item)
                for key, item in value.items()
            }
        return value

    def _typed(self, value: Dict[str, Any], typed: List[Any]) -> Dict[str, Any]:
        name, content = typed[0], typed[1]
        if name == "bytes" and isinstance(content, str):
            from binascii import a2b_base64, b2a_base64

            raw = a2b_base64(content)
            scrubbed = self.data(raw)
            return (
                value
                if scrubbed == raw
                else {"$": [name, b2a_base64(scrubbed, newline=False).decode("ascii")]}
            )
        if name == "dict" and isinstance(content, list):
            return {"$": [name, [self._pair(pair) for pair in content]]}
        return {"$": [name, *(self.packed(item) for item in typed[1:])]}

    def _pair(self, pair: Any) -> Any:
        if (
            isinstance(pair, list)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and isinstance(pair[1], str)
        ):
            return [self.text(pair[0]), self.named(pair[0], pair[1])]
        return self.packed(pair)


_HEADERS = frozenset(("cookie", "set-cookie", "authorization", "proxy-authorization"))


def _spots(low: str, hints: Iterable[str]) -> List[int]:
    """Where a secret's name may stand, in rising order."""
    spots = []
    for hint in hints:
        at = low.find(hint)
        while at >= 0:
            spots.append(at)
            at = low.find(hint, at + len(hint))
    return sorted(spots)


def _field_at(value: str, spot: int) -> Any:
    """The field of JSON or of a form whose name goes over a place: a match of (name, what is between, value); or None."""
    begin = max(0, spot - 64)
    quote = value.rfind('"', begin, spot)
    if quote >= 0:
        found = _JSON_FIELD.match(value, quote) or _ESCAPED_FIELD.match(value, quote)
        if found is not None and found.end(1) > spot:
            return found
    before = _NAME_BEFORE.search(value, begin, spot)
    return _FORM_FIELD.match(value, spot if before is None else before.start())


def _unescaped(found: Any) -> str:
    value = str(found[3])
    if found[2] == "=":
        if "%" in value or "+" in value:
            from urllib.parse import unquote_plus

            return unquote_plus(value)
    elif "\\" in value:
        from json import loads

        try:
            return str(loads(f'"{value}"', strict=False))
        except ValueError:
            return value
    return value


def _length(pair: Tuple[str, str]) -> int:
    return len(pair[0])


def _forms(secret: str) -> List[str]:
    """The ways in which a secret may be written."""
    forms = [secret]
    if not secret.isalnum() or not secret.isascii():
        from json import dumps
        from urllib.parse import quote, quote_plus, unquote

        text = secret.encode("utf-8", "replace").decode("utf-8")
        forms += [quote(text, safe=""), quote(text), quote_plus(text), dumps(secret)[1:-1]]
        forms += [dumps(secret, ensure_ascii=False)[1:-1], unquote(secret)]
    return [form for form in dict.fromkeys(forms) if len(form) >= _SHORTEST]
