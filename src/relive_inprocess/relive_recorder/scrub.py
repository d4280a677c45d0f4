"""Taking secrets out of what is recorded, by value: wherever a known secret stands, its placeholder stands instead.

A value becomes a secret by where it was seen (an environment variable, option of the command line, header, parameter, field of
JSON, of a form in either encoding or of a text such as ``name: 'value'`` whose name looks like a credential or was configured; a
cookie; the password in a URL; what follows ``Basic`` and ``Bearer``), or by what it looks like (``shapes``, a configured pattern, a
card number that its check digit confirms). It is found again as it is, in UTF-8, percent-encoded, escaped as in JSON and HTML, in
packed bytes, in gzip, in base64 and in hexadecimal: there, of those that are not remembered for good, only in ``Basic`` tokens.

The placeholder ``<secret:XXXXXXXX>`` holds 8 hex digits of a keyed hash: the same secret gives the same placeholder, in this
process, its forks and its replays (the key lies in the memory that is committed), and nobody can try out guesses without that key.

Limits: secrets of the environment and of the configuration are remembered for good, of others the last 128; shorter ones than 6
characters are only replaced where their name told that they are secret.
"""

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Pattern, Sequence, Tuple

from . import shapes  # the host imports this by another name of the package
from .credential_names import HINTS, is_credential_name
from .lazy_pattern import LazyPattern
from .text_fields import field_at, places_of

__all__ = ["Scrubber", "check_with"]

# Makes of (hints, forms, sure) what knows in no time of most texts that no secret is in them (see ``quick``); None without.
_checker_kind: Any = None


def check_with(kind: Any) -> None:
    """Have texts looked through by that first, or by nothing (None). For scrubbers that are made from now on."""
    global _checker_kind
    _checker_kind = kind


# Cards begin with 2 to 6: times in milliseconds, ids that begin with zeros and most other long numbers do not. Begins with a plain
# class of characters, which is what the search is fast for; what stands before is looked at later.
_CARD = LazyPattern(r"[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
# How many digits a card has, by its first one; of others 16.
_CARD_DIGITS = {"3": (14, 15, 16), "4": (13, 16, 19), "6": (16, 17, 18, 19)}
_URL_PASSWORD = LazyPattern(r"(?<=://)([^/@:\s]*):([^/@\s]+)(?=@)")
_OPTION_NAME = LazyPattern(r"--?([A-Za-z][A-Za-z0-9_.-]*)")
# Of a form in parts, RFC 7578.
_PART = LazyPattern(
    r'(name="([^"\r\n]{1,64})"[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n)(.*?)(?=\r?\n--|\Z)',
    re.DOTALL | re.IGNORECASE,
)
_SCHEME = LazyPattern(r"\b(Basic|Bearer)(\s+)([A-Za-z0-9._~+/=-]{4,})", re.IGNORECASE)
_PERCENT = LazyPattern(r"%[0-9A-F]{2}")
_JSON_IN_HTML = LazyPattern(
    r"[&<>']"
)  # escaped by Flask and Go (it leaves the last one) besides what JSON wants
_QUOTES_IN_HTML = (
    ("&quot;", "&#x27;"),
    ("&#34;", "&#39;"),
    ("&quot;", "&#039;"),
)  # Python and Django, MarkupSafe and Go, PHP
_PLACEHOLDER = LazyPattern(r"<secret:[0-9a-f]{8}>")
_SHORTEST = 6  # [characters] shorter values stand in too many places by chance
_SHORTEST_PACKED = 8  # [bytes] in base64 and hexadecimal
_RECENT = 128  # and those that are seen while the service runs: each is looked for in every text
_MEMORY = 2048  # names, headers and texts of which it is remembered what was made of them
_SHORT = 256  # [characters] only such texts are
_UNPACKED_MOST = 16 << 20  # [bytes] more of what lies in gzip is not looked through
_GZIP = b"\x1f\x8b\x08"
_Forms = Tuple[Tuple[str, str], ...]  # (a way in which a secret is written, its placeholder)
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


class Scrubber:
    """Knows the secrets that were seen. ``learn`` and ``text`` may be called by any thread.

    Attributes:
        checker: ``clean(text)`` tells whether no secret is in a text, where False says nothing; None: it is to be made again, as
            something was learned; False: there is none.
        most: secrets that are remembered for good.
    """

    most = 4096

    def __init__(self, patterns: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        self._key = os.urandom(16)
        self._patterns: List[Pattern[str]] = [re.compile(one) for one in patterns]
        self._names = {_dashed(name) for name in names}
        self._hints = (*HINTS, *{name.lower() for name in names}, *self._names)
        self._lasting: Dict[str, str] = {}
        self._recent: Dict[str, str] = {}
        self._lasting_forms: _Forms = ()
        self._recent_forms: Dict[str, _Forms] = {}
        self._changed = object()  # another one after each secret that was learned
        self._sorted: Tuple[object, _Forms] = (None, ())
        self._named: Dict[str, bool] = {}  # what is_secret_name said
        self._texts: Dict[Any, Any] = {}  # see ``made``
        self._checker_kind = _checker_kind
        self._checkers: List[Any] = []  # that are not outdated
        self.checker: Any = None if _checker_kind is not None else False

    @property
    def _known(self) -> "_Forms":
        """Longest first: one that holds another is taken as a whole. Sorted when it is asked for: a text may tell thousands."""
        changed = self._changed
        made, known = self._sorted
        if made is not changed:
            forms = [*self._lasting_forms]
            for some in list(self._recent_forms.values()):
                forms += some
            known = tuple(sorted(forms, key=_length, reverse=True))
            self._sorted = changed, known
        return known

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Remember for good the secrets among a process's environment variables."""
        for name, value in environment.items():
            if self.is_secret_name(name):
                self.learn(value, lasting=True)
            else:
                self._learn_within(value)

    def _learn_within(self, value: str) -> None:
        if "://" in value:
            for found in _URL_PASSWORD.finditer(value):
                self.learn(found[2], lasting=True)
        for secret in shapes.found_in(value):
            self.learn(secret, lasting=True)

    def learn_command(self, command: Sequence[str]) -> None:
        """Remember for good the secrets on a command line: ``--password V``, ``--password=V``, and those in URLs."""
        before = ""
        for word in command:
            option, equals, value = word.partition("=")
            if before and not word.startswith("--"):
                self.learn(word, lasting=True)
                before = ""
                continue
            known = _OPTION_NAME.fullmatch(option)
            is_secret = known is not None and self.is_secret_name(known[1])
            before = option if is_secret and not equals else ""
            if is_secret and value:
                self.learn(value, lasting=True)
            else:
                self._learn_within(word)

    def words(self, command: Sequence[str]) -> List[str]:
        """A command line without the secrets on it, which are remembered for good."""
        self.learn_command(command)
        scrubbed: List[str] = []
        is_value = False
        for word in command:
            # Short values are not found by what they are.
            scrubbed.append(
                self.learn(word) if is_value and word and not word.startswith("--") else self.text(word)
            )
            known = None if is_value and not word.startswith("--") else _OPTION_NAME.fullmatch(word)
            is_value = known is not None and self.is_secret_name(known[1])
        return scrubbed

    def is_secret_name(self, name: str) -> bool:
        """A value of this name is a secret, by its look or by configuration."""
        said = self._named.get(name)
        if said is None:
            said = _dashed(name) in self._names or is_credential_name(name)
            if len(self._named) < _MEMORY:
                self._named[name] = said
        return said

    def may_name(self, text: str) -> bool:
        """Whether a name may stand in a text that says that a value is secret."""
        low = text.lower()
        return any(hint in low for hint in self._hints)

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
        forms = tuple([(form, placeholder) for form in self.forms(value, lasting)])
        if lasting and len(self._lasting) < self.most:
            self._lasting = {**self._lasting, value: placeholder}
            self._lasting_forms = (*self._lasting_forms, *forms)
        else:
            self._recent_forms[value] = forms
            self._recent[value] = placeholder
            if len(self._recent) > _RECENT:
                oldest = list(self._recent)[0]  # noqa: RUF015 - in one step, as other threads do the same
                self._recent.pop(oldest, None)
                self._recent_forms.pop(oldest, None)
        self._changed = object()
        self._texts = {}  # after it: whoever made a text with what was known before puts it into the old one
        self._outdate_checkers()

    def forms(self, secret: str, lasting: bool) -> List[str]:
        """The ways in which a secret is looked for. Each is looked for in every text, so that those in base64 are for few."""
        return [*_forms(secret), *_packed_forms(secret)] if lasting else _forms(secret)

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
        for secret in shapes.found_in(value):
            value = value.replace(secret, self.learn(secret))
        low = value.lower()
        if "basic" in low or "bearer" in low:
            value = _SCHEME.sub(self._token, value)
            low = value.lower()
        if ":" in value or "=" in value:
            for hint in self._hints:
                if hint in low:
                    value = self._fields(value, low)
                    if "form-data" in low:
                        value = _PART.sub(self._part, value)
                    break
        return _CARD.sub(self._card, value) if len(value) >= 13 else value

    def make_checker(self) -> Any:
        """Make ``checker`` for what is known now, where there is a kind of it."""
        while True:
            known = self._known
            forms = (*shapes.BEGINNINGS, *[form for form, _ in known])
            checker = self._checker_kind(self._hints, forms, not self._patterns)
            self._checkers.append(checker)
            self.checker = checker
            if self._known is known:  # else another thread learned something meanwhile
                return checker
            self._outdate_checkers()

    def _outdate_checkers(self) -> None:
        """They know too little by now. All that were made: the part in C remembers the one that it has seen last."""
        # Each is forgotten after it was told: a signal's handler may raise in between.
        for one in list(self._checkers):
            one.outdate()
            try:
                self._checkers.remove(one)
            except ValueError:  # another thread did it
                pass
        if self.checker:
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
        for spot in places_of(low if len(low) == len(value) else value, self._hints):
            if spot < done:
                continue
            found = field_at(value, spot)
            if found is None or found.start < done or not found.value:
                continue
            if self.is_secret_name(found.name):
                parts += (value[done : found.at], self.learn(found.value))
                done = found.end
        return "".join(parts) + value[done:] if parts else value

    def _part(self, found: Any) -> str:
        if not found[3] or not self.is_secret_name(found[2]):
            return str(found[0])
        return f"{found[1]}{self.learn(found[3])}"

    def is_clean(self, texts: List[str]) -> bool:
        """No secret stands in any of them; looks at all of them at once. May say False where there is none either."""
        if self._patterns:  # one that is tied to a text's beginning would not be found
            return False
        whole = "\n".join(texts)
        return self.text(whole) == whole

    def _card(self, found: Any) -> str:
        text, whole = found.string, found[0]
        begin, end = found.start(), found.end()
        # The end of a longer number, or of a name.
        if begin and (text[begin - 1].isalnum() or text[begin - 1] == "_"):
            return str(whole)
        # What stands behind a decimal point.
        if begin > 1 and text[begin - 1] == "." and text[begin - 2].isdigit():
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
        checker = self.checker
        if checker is None:
            checker = self.make_checker()
        if checker and checker.clean(value):
            return value
        if value[:3] == _GZIP:
            return self._unzipped(value)
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return self._bytes(value)
        scrubbed = self.text(text)
        return value if scrubbed == text else scrubbed.encode("utf-8", "replace")

    def _unzipped(self, value: bytes) -> bytes:
        """In gzip again where a secret was in it, else as it was."""
        import zlib

        try:
            plain = zlib.decompressobj(31).decompress(value, _UNPACKED_MOST)
        except zlib.error:
            return self._bytes(value)
        scrubbed = self.data(plain)
        if scrubbed == plain:
            return value
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        return packer.compress(scrubbed) + packer.flush()

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
            return {key: self._of_name(key, item) for key, item in value.items()}
        return value

    def _of_name(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.named(name, value)
        return self.secret(value) if self.is_secret_name(name) else self.packed(value)

    def secret(self, value: Any, shortest: int = 1) -> Any:
        """A packed value that is secret as a whole: each text in it, of at least so many characters, is one."""
        if isinstance(value, str):
            return self.learn(value) if len(value) >= shortest else value
        if isinstance(value, list):
            return [self.secret(item, shortest) for item in value]
        if not isinstance(value, dict):
            return value
        typed = value.get("$")
        if not isinstance(typed, list) or len(typed) < 2:
            return {key: self.secret(item, shortest) for key, item in value.items()}
        if typed[0] == "bytes" and isinstance(typed[1], str):
            from binascii import a2b_base64

            return {"$": ["utf8", self.secret(a2b_base64(typed[1]).decode("latin-1"), shortest)]}
        if typed[0] == "dict" and isinstance(typed[1], list):
            pairs = [[one[0], self.secret(one[1], shortest)] if _is_pair(one) else one for one in typed[1]]
            return {"$": [typed[0], pairs]}
        return {"$": [typed[0], *(self.secret(item, shortest) for item in typed[1:])]}

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
        if _is_pair(pair) and isinstance(pair[0], str):
            return [self.text(pair[0]), self._of_name(pair[0], pair[1])]
        return self.packed(pair)


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2


def _dashed(name: str) -> str:
    """A configured name is found as ``internal_code`` and as ``internal-code``."""
    return name.lower().replace("_", "-").strip("-")


_HEADERS = frozenset(("cookie", "set-cookie", "authorization", "proxy-authorization"))


def _length(pair: Tuple[str, str]) -> int:
    return len(pair[0])


def _small(escape: Any) -> str:
    return str(escape[0]).lower()


def _unit(character: Any) -> str:
    return f"\\u{ord(character[0]):04x}"


def _forms(secret: str) -> List[str]:
    """The ways in which a secret may be written."""
    forms = [secret]
    if not secret.isalnum() or not secret.isascii():
        from json import dumps
        from urllib.parse import quote, quote_plus, unquote

        text = secret.encode("utf-8", "replace").decode("utf-8")
        percent = [quote(text, safe=""), quote(text), quote_plus(text)]
        forms += [*percent, *[_PERCENT.sub(_small, form) for form in percent], unquote(secret)]
        for quoted in (dumps(secret)[1:-1], dumps(secret, ensure_ascii=False)[1:-1]):
            forms += [quoted, quoted.replace("/", "\\/"), _JSON_IN_HTML.sub(_unit, quoted)]
        html = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        forms += [html, *[html.replace('"', d).replace("'", s) for d, s in _QUOTES_IN_HTML]]
    return [form for form in dict.fromkeys(forms) if len(form) >= _SHORTEST]


def _packed_forms(secret: str) -> List[str]:
    """In hexadecimal, and in base64 of either alphabet wherever it begins there: without characters that hold bits of others."""
    from binascii import b2a_base64

    raw = secret.encode("utf-8", "surrogatepass")
    forms: List[str] = []
    if len(raw) >= _SHORTEST_PACKED:
        forms += [raw.hex(), raw.hex().upper()]
        for before in range(3):
            text = b2a_base64(b"\0" * before + raw, newline=False).decode("ascii")
            form = text[(0, 2, 3)[before] : (before + len(raw)) * 8 // 6]
            forms += [form, form.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(forms))
