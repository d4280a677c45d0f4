"""Secrets taken out of what the recording proxy kept, which holds the bytes as they were.

What is secret is decided by the recorder's own rule (``relive_inprocess``), so that one setting and one look of names hold for
both. There a secret has a placeholder with a keyed hash; here, where that key is not known, all have the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote_plus

from relive.model.incident import Incident, IncidentFacts, Sighting
from relive_inprocess.relive_recorder.scrub import Scrubber

__all__ = ["MASK", "Mask", "masked_facts", "masked_incident"]

AnyIncident = TypeVar("AnyIncident", bound=IncidentFacts)

MASK = "<secret>"
_PAIR = re.compile(r"(?P<name>[^=&?#\s]+)=(?P<value>[^&#\s)]*)")


class Mask(Scrubber):
    """Remembers each secret that it met and masks it wherever it comes again.

    Args:
        patterns, names: the settings ``secret_patterns`` and ``secret_names``.
    """

    def __init__(self, patterns: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        super().__init__(patterns, names)

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
        return self._pairs(text)

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
            return data
        return data if masked == value else json.dumps(masked, ensure_ascii=False).encode("utf-8", "replace")

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
