"""Taking secrets out of what is recorded, by value: wherever a known secret stands, its placeholder stands instead.

A value becomes a secret by where it was seen (an environment variable or header whose name looks like a credential, a
configured name), or by what it looks like (a configured pattern, a card number that its check digit confirms). The placeholder
``<secret:XXXXXXXX>`` holds 8 hex digits of a keyed hash: the same secret gives the same placeholder, in this process, its
forks and its replays (the key lies in the memory that is committed), and nobody can try out guesses without that key.
"""

import hashlib
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Pattern

__all__ = ["Scrubber", "is_credential_name"]

_NAMES = re.compile(
    r"pass(word|wd|phrase)?$|passw|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|"
    r"^cookie$|^set-cookie$|x-amz-security|session[-_]?(id|key)|signature|\bdsn\b|encryption[-_]?key",
    re.IGNORECASE,
)
# Cards begin with 2 to 6: times in milliseconds, ids that begin with zeros and most other long numbers do not.
_CARD = re.compile(r"(?<![0-9])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):([^/@\s]+)(?=@)")
_PLACEHOLDER = re.compile(r"<secret:[0-9a-f]{8}>")
_SHORTEST = 6  # [characters] shorter values stand in too many places by chance
_MOST = 4096  # secrets that are remembered


def is_credential_name(name: str) -> bool:
    """An environment variable, header or parameter of this name holds a secret."""
    return _NAMES.search(name) is not None


class Scrubber:
    """Knows the secrets that were seen. ``learn`` and ``text`` may be called by any thread."""

    def __init__(self, patterns: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        self._key = os.urandom(16)
        self._patterns: List[Pattern[str]] = [re.compile(one) for one in patterns]
        self._names = {name.lower() for name in names}
        self._known: Dict[str, str] = {}
        self._any: Optional[Pattern[str]] = None

    def is_secret_name(self, name: str) -> bool:
        """A value of this name is a secret, by its look or by configuration."""
        return name.lower() in self._names or is_credential_name(name)

    def placeholder(self, secret: str) -> str:
        """What stands for it."""
        digest = hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=4, key=self._key)
        return f"<secret:{digest.hexdigest()}>"

    def learn(self, value: str) -> str:
        """Remember a value as a secret, and return its placeholder. Very short ones are replaced here only.

        A placeholder stands for itself: in a replay the service is handed one and may send it on.
        """
        if _PLACEHOLDER.fullmatch(value):
            return value
        placeholder = self.placeholder(value)
        if len(value) >= _SHORTEST and value not in self._known and len(self._known) < _MOST:
            known = dict(self._known)
            known[value] = placeholder
            # Longest first, so that a secret that holds another one is taken as a whole.
            longest_first = sorted(known, key=len, reverse=True)
            self._known, self._any = known, re.compile("|".join(map(re.escape, longest_first)))
        return placeholder

    def named(self, name: str, value: str) -> str:
        """A value with a name: its placeholder if the name says that it is secret, else as ``text``."""
        return self.learn(value) if value and self.is_secret_name(name) else self.text(value)

    def text(self, value: str) -> str:
        """A text without the secrets in it."""
        if self._any is not None:
            known = self._known
            value = self._any.sub(lambda found: known.get(found[0], "<secret>"), value)
        for pattern in self._patterns:
            value = pattern.sub(lambda found: self.placeholder(found[0]), value)
        if "://" in value:
            value = _URL_PASSWORD.sub(lambda found: f"{found[1]}:{self.learn(found[2])}", value)
        return _CARD.sub(self._card, value) if len(value) >= 13 else value

    def is_clean(self, texts: List[str]) -> bool:
        """No secret stands in any of them; looks at all of them at once. May say False where there is none either."""
        if self._patterns:  # one that is tied to a text's beginning would not be found
            return False
        whole = "\n".join(texts)
        return self.text(whole) == whole

    def _card(self, found: Any) -> str:
        digits = [int(one) for one in found[0] if one.isdigit()]
        doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
        return self.placeholder(found[0]) if (sum(digits[-1::-2]) + doubled) % 10 == 0 else found[0]

    def data(self, value: bytes) -> bytes:
        """Bytes without the secrets in them; what is no UTF-8 is searched byte by byte all the same."""
        text = value.decode("latin-1") if value else ""
        scrubbed = self.text(text) if text else text
        return value if scrubbed is text or scrubbed == text else scrubbed.encode("latin-1", "replace")

    def packed(self, value: Any) -> Any:
        """A tree of JSON values (see ``values``) with every text in it scrubbed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.packed(item) for item in value]
        if isinstance(value, dict):
            return {
                key: self.named(key, item) if isinstance(item, str) else self.packed(item)
                for key, item in value.items()
            }
        return value
