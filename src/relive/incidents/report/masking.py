"""Secrets taken out of whatever the host writes, shows, exports or sends: by the recorder's own rule
(``relive_inprocess``), so that one setting and one look of names hold for both.

There a secret has a placeholder with a keyed hash; in what is shown all have the same. What lies in files beside an incident is
masked with ``FileMask``, whose placeholders look like the recorder's, so that a reproduction takes them for what they are.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, unquote_plus

from pydantic import BaseModel, ValidationError

from relive.config import Settings
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts
from relive.model.incident import Incident, IncidentFacts, Sighting
from relive_inprocess.relive_recorder import quick, scrub
from relive_inprocess.relive_recorder.scrub import Scrubber

__all__ = ["MASK", "FileMask", "Mask", "mask_for", "masked_facts", "masked_incident"]

# Most texts hold no secret, which the part in C sees in no time, where it can be loaded.
_native = quick.load()
if _native is not None:
    scrub.check_with(_native.Checker)

AnyModel = TypeVar("AnyModel", bound=BaseModel)
AnyIncident = TypeVar("AnyIncident", bound=IncidentFacts)

MASK = "<secret>"
_TRIES = 5
_LOG_BYTES = 64 << 10
_RULES = frozenset({"secret_names", "secret_patterns"})  # settings, which tell what is secret
_CUT = re.compile(r"\.\.\.(?=['\"])")  # where a quoted text was cut to fit its line
_BEGINNING = 4  # [characters] of a secret that must not be shown before such a place
_FIELD = re.compile(
    r'(?P<before>"(?P<name>[^"\\]*)"\s*:\s*)(?P<value>"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|-?[0-9][0-9.eE+-]*)',
    re.DOTALL,
)
_PAIR = re.compile(r"(?P<name>[^=&?#\s]+)=(?P<value>[^&#\s)]*)")


class Mask(Scrubber):
    """Remembers each secret that it met and masks it wherever it comes again.

    Args:
        patterns, names: the settings ``secret_patterns`` and ``secret_names``.
    """

    most = 512  # each is looked for, in all its forms, in every text that is not clean

    def __init__(self, patterns: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        super().__init__(patterns, names)
        self.learned = 0  # how often a new one was
        self.fresh: list[str] = []  # those that were learned since somebody emptied it

    @classmethod
    def configured(cls, settings: Settings) -> Self:
        """One that knows what the settings say."""
        return cls(settings.secret_patterns, settings.secret_names)

    def learn(self, value: str, *, lasting: bool = False) -> str:  # noqa: ARG002 - a mask lives no longer than what it masks
        """As the recorder's, but nothing is forgotten again."""
        return value if MASK in value else super().learn(value, lasting=True)

    def _remember(self, value: str, placeholder: str, lasting: bool) -> None:
        self.learned += 1
        self.fresh.append(value)
        super()._remember(value, placeholder, lasting)

    def learn_process(self, pid: int) -> None:
        """Know the secrets in the environment and on the command line of a process; of one that is gone nothing."""
        self.learn_environment(procfs.environment_of(pid))
        self.learn_command(procfs.command_of(pid))

    def learn_log(self, path: Path) -> None:
        """Know what the last lines of a service's output tell: a secret that is named there may stand elsewhere without a name."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            for line in file.read(_LOG_BYTES).decode(errors="replace").splitlines():
                self.sentence(line)

    def tree(self, value: Any) -> Any:
        """JSON, values that the recorder packed among it, without secrets: by names of fields, and each text as ``sentence``."""
        if isinstance(value, str):
            return self.sentence(value)
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        if not isinstance(value, dict):
            return value
        typed = value.get("$")
        if isinstance(typed, list) and len(typed) > 1:
            return self.packed(value)
        return {key: self._tree_of(key, item) for key, item in value.items()}

    def _tree_of(self, name: str, value: Any) -> Any:
        if name == "locals" and isinstance(value, dict):
            # Representations, from which the recorder took secrets by name; as a whole they are none.
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, bool) or name in _RULES or not self.is_secret_name(name):
            return self.tree(value)
        return self.named(name, value) if isinstance(value, str) else self.secret(value)

    def whole(self, value: Any) -> Any:
        """As ``tree``, with what is known only at the end masked from the beginning on."""
        before = -1
        while before != self.learned:
            before = self.learned
            value = self.tree(value)
        return value

    def model(self, value: AnyModel) -> AnyModel:
        """A model of pydantic's, as ``whole``, but for fields that can only be as they are."""
        given = value.model_dump(mode="json")
        masked = self.whole(given)
        if masked == given:
            return value
        for _ in range(_TRIES):
            try:
                return type(value).model_validate_json(json.dumps(masked))
            except ValidationError as error:
                # A secret that is, by chance, a part of a fingerprint or of an id.
                for one in error.errors(include_url=False):
                    _put_back(masked, given, one["loc"])
        return value.model_copy()

    def placeholder(self, secret: str) -> str:  # noqa: ARG002 - the hash of a guess would confirm it
        """What stands for any secret."""
        return MASK

    def headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
        """Headers as text, in order."""
        plain = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        return [(name, self.named(name, value)) for name, value in plain]

    def target(self, target: str) -> str:
        """The target of a request: parameters of its query by their names, the rest as text."""
        path, mark, query = target.partition("?")
        return self.text(path) + mark + self._pairs(query)

    def sentence(self, text: str) -> str:
        """A sentence or a line of a log, which may hold the target of a request."""
        checker = self.checker if self.checker is not None else self.make_checker()
        masked = text if checker and checker.clean(text) else self._pairs(text)
        if "..." not in masked:
            return masked
        pieces = _CUT.split(masked)
        return "...".join([*map(self._without_beginning, pieces[:-1]), pieces[-1]])

    def _without_beginning(self, text: str) -> str:
        """Without the beginning of a secret at its end."""
        cut = 0
        for secret in (*self._lasting, *self._recent):
            for length in range(min(len(secret) - 1, len(text)), max(cut, _BEGINNING - 1), -1):
                if text.endswith(secret[:length]):
                    cut = length
                    break
        return text[:-cut] + MASK if cut else text

    def _pairs(self, query: str) -> str:
        def masked(found: re.Match[str]) -> str:
            name, value = unquote_plus(found["name"]), found["value"]
            if value and self.is_secret_name(name):
                self.learn(unquote_plus(value))
                return f"{found['name']}={quote(self.learn(value), safe='<>:')}"
            return f"{found['name']}={value}"

        # Most lines of a log hold no pair, and the search for one is most of what masking a page of incidents costs.
        return self.text(_PAIR.sub(masked, query) if "=" in query else query)

    def body(self, data: bytes, content_type: str) -> bytes:
        """A body: fields of JSON and of forms by their names, the rest by value. JSON that held no secret stays byte for byte."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind == "application/json" or kind.endswith("+json"):
            return self.data(self._json(data))
        if kind == "application/x-www-form-urlencoded":
            return self._pairs(data.decode("latin-1")).encode("latin-1", "replace")
        return self.data(data)

    def _json(self, data: bytes) -> bytes:
        try:
            value = json.loads(data)
            masked = self._named_fields(value)
        except (ValueError, RecursionError):
            return self._cut_json(data)
        return data if masked == value else json.dumps(masked, ensure_ascii=False).encode("utf-8", "replace")

    def _cut_json(self, data: bytes) -> bytes:
        """What begins as JSON, and ends anywhere: fields with a text or a number."""
        text = data.decode("utf-8", "surrogateescape")
        return _FIELD.sub(self._cut_field, text).encode("utf-8", "surrogateescape")

    def _cut_field(self, found: re.Match[str]) -> str:
        if not found["value"].strip('"') or not self.is_secret_name(found["name"]):
            return found[0]
        shown = MASK  # of a text that is cut, too
        with contextlib.suppress(ValueError):
            if isinstance(text := json.loads(found["value"]), str):
                shown = self.learn(text)
        return found["before"] + json.dumps(shown)

    def _named_fields(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._named_fields(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: self._field(key, item) for key, item in value.items()}

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, dict | list | bool) or not value or not self.is_secret_name(name):
            return self._named_fields(value)
        return self.learn(value) if isinstance(value, str) else MASK


class FileMask(Mask):
    """For files: placeholders tell one secret from another, by a key that is kept nowhere."""

    placeholder = Scrubber.placeholder

    def learn(self, value: str, *, lasting: bool = False) -> str:  # noqa: ARG002
        """As ``Mask``."""
        return value if MASK in value else Scrubber.learn(self, value, lasting=True)


def _put_back(masked: Any, given: Any, place: Sequence[int | str]) -> None:
    """Have one part of JSON be as it was, or as much of what it is in as can be named."""
    for step in place[:-1]:
        try:
            masked, given = masked[step], given[step]
        except (KeyError, IndexError, TypeError):
            return
    with contextlib.suppress(KeyError, IndexError, TypeError):
        masked[place[-1]] = given[place[-1]]


def mask_for(settings: Settings, service: str, life: str = "current") -> Mask:
    """A mask that knows what the settings say, and the secrets of a capsule's service while that runs."""
    mask = Mask.configured(settings)
    try:
        state = Path(settings.capsules / service / life / "state.json").read_bytes()
        facts = CapsuleFacts.model_validate_json(state)
    except (OSError, ValueError):
        return mask
    if procfs.is_same_process(facts.init, facts.init_started):
        mask.learn_process(facts.root)
    for log in ("stdout.log", "stderr.log"):
        mask.learn_log(settings.capsules / service / life / "io" / log)
    return mask


def masked_facts(incident: AnyIncident, mask: Mask) -> AnyIncident:
    """What is known of an incident; its summary names the target of the request."""

    def masked(sighting: Sighting) -> Sighting:
        return sighting.model_copy(update={"summary": mask.sentence(sighting.summary)})

    latest = incident.latest
    if latest is not None:
        latest = latest.model_copy(update={"sighting": masked(latest.sighting)})
    return incident.model_copy(update={"sighting": masked(incident.sighting), "latest": latest})


def masked_incident(incident: Incident, mask: Mask) -> Incident:
    """The same, with its log lines, which are the service's."""
    lines = [mask.sentence(line) for line in incident.log_tail]
    return masked_facts(incident, mask).model_copy(update={"log_tail": lines})
